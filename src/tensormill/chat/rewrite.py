"""The pass over a parsed template that puts a guard where Jinja itself offers no hook.

Loops and macros count their turns; `~`, comparisons, slices and literals become calls of the environment. It changes
no meaning. The other hooks (operators, filters, calls, output) are methods of `sandbox.Sandbox`.
"""

from __future__ import annotations

from typing import NoReturn, TypeVar

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.visitor import NodeTransformer

_Body = TypeVar("_Body", nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)


def _guard(name: str, at: nodes.Node, *arguments: nodes.Expr) -> nodes.Call:
    function = nodes.EnvironmentAttribute(name, lineno=at.lineno)
    return nodes.Call(function, list(arguments), [], None, None, lineno=at.lineno)


class Guarding(NodeTransformer):
    """Rewrites one template in place."""

    def _turn(self, node: _Body) -> _Body:
        self.generic_visit(node)
        text = sum(len(data.data) for child in node.body for data in _static(child))
        turn = _guard("guard_turn", node, nodes.Const(text, lineno=node.lineno))
        node.body.insert(0, nodes.ExprStmt(turn, lineno=node.lineno))
        return node

    visit_Macro = visit_CallBlock = visit_Block = _turn

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: D102
        self._turn(node)
        if node.test is not None:
            turn = _guard("guard_turn", node, nodes.Const(0, lineno=node.lineno))
            node.test = nodes.And(turn, node.test, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: D102
        self.generic_visit(node)
        return _guard("guard_concat", node, *node.nodes)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: D102
        self.generic_visit(node)
        left, result = node.expr, None
        for operand in node.ops:
            operator = nodes.Const(operand.op, lineno=node.lineno)
            test: nodes.Expr = _guard("guard_compare", node, operator, left, operand.expr)
            result = test if result is None else nodes.And(result, test, lineno=node.lineno)
            left = operand.expr
        assert result is not None
        return result

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: D102
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        none = nodes.Const(None, lineno=node.lineno)
        return _guard("guard_slice", node, node.node, node.arg.start or none, node.arg.stop or none, node.arg.step or none)

    def _spread(self, node: nodes.Call | nodes.Filter | nodes.Test) -> nodes.Node:
        self.generic_visit(node)
        if node.dyn_args is not None:
            node.dyn_args = _guard("guard_spread", node, node.dyn_args)
        return node

    visit_Call = visit_Filter = visit_Test = _spread

    def _literal(self, node: nodes.List | nodes.Tuple | nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        stored = isinstance(node, nodes.Tuple) and node.ctx != "load"
        return node if stored else _guard("guard_contents", node, node)

    visit_List = visit_Tuple = visit_Dict = _literal

    def _refused(self, node: nodes.Node) -> NoReturn:
        raise TemplateSyntaxError("a chat template cannot load other templates or switch escaping", node.lineno)

    visit_Include = visit_Extends = visit_Import = visit_FromImport = _refused
    visit_EvalContextModifier = visit_ScopedEvalContextModifier = _refused


def _static(node: nodes.Node) -> list[nodes.TemplateData]:
    return [node] if isinstance(node, nodes.TemplateData) else list(node.find_all(nodes.TemplateData))
