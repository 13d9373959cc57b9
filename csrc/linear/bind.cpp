// Python's view of the linear kernels, for loading and for tests: NumPy arrays in and out, one thread.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <memory>
#include <new>
#include <optional>

#include "linear/linear.h"

namespace nb = nanobind;

namespace mill {
namespace {

using namespace mill::linear;
template <class T, int n> using Array = nb::ndarray<T, nb::ndim<n>, nb::c_contig, nb::device::cpu>;
using Rows = std::optional<Array<const int32_t, 1>>;

const int32_t* rows_of(const Rows& rows) { return rows ? rows->data() : nullptr; }

struct Scratch {
  void* at = ::operator new(kScratchBytes, std::align_val_t{64});
  ~Scratch() { ::operator delete(at, std::align_val_t{64}); }
};

void check(bool ok, const char* message) {
  if (!ok) throw nb::value_error(message);
}

void pack_matrix(int type, Array<const uint8_t, 2> source, int64_t columns, Array<uint8_t, 1> packed) {
  const auto t = static_cast<Type>(type);
  const auto rows = static_cast<int64_t>(source.shape(0));
  check(columns % block_of(t) == 0 && static_cast<int64_t>(source.shape(1)) == row_bytes(t, columns),
        "pack: a row has another number of bytes than its columns need");
  check(static_cast<int64_t>(packed.size()) == packed_bytes(t, rows, columns), "pack: wrong size of the packed array");
  nb::gil_scoped_release release;
  pack(t, source.data(), rows, columns, 0, panels(rows), packed.data());
}

void quantise(Array<const float, 2> x, Array<int8_t, 2> codes, Array<float, 2> scales, Array<int16_t, 2> sums) {
  const auto rows = static_cast<int64_t>(x.shape(0)), columns = static_cast<int64_t>(x.shape(1));
  check(columns % 32 == 0 && codes.size() == x.size() && scales.size() * 32 == x.size() && sums.size() * 16 == x.size(),
        "quantise_rows: columns must be a multiple of 32, with a scale for each 32 and a sum for each 16");
  nb::gil_scoped_release release;
  kernels().quantise_rows(x.data(), columns, 0, rows, columns, codes.data(), scales.data(), sums.data(), columns);
}

void run(const Matrix& m, const Activations& x, int64_t x_count, const Rows& x_rows, Array<float, 2> out,
         const Rows& out_rows, int64_t begin, int64_t end) {
  check(begin >= 0 && begin <= end && end <= panels(m.rows), "multiply: panels out of range");
  check(static_cast<int64_t>(out.shape(1)) >= m.rows, "multiply: out is narrower than the matrix has rows");
  const int64_t n = x_rows ? static_cast<int64_t>(x_rows->size()) : x_count;
  for (int64_t i = 0; i < n; ++i) {
    check(!x_rows || (rows_of(x_rows)[i] >= 0 && rows_of(x_rows)[i] < x_count), "multiply: x_rows out of range");
    const int64_t row = out_rows ? rows_of(out_rows)[i] : i;
    check(row >= 0 && row < static_cast<int64_t>(out.shape(0)), "multiply: out rows out of range");
  }
  Scratch scratch;
  nb::gil_scoped_release release;
  kernels().multiply(m, begin, end, x, rows_of(x_rows), n, out.data(), static_cast<int64_t>(out.shape(1)),
                     rows_of(out_rows), scratch.at);
}

Matrix matrix(int type, Array<const uint8_t, 1> packed, int64_t rows, int64_t columns) {
  const auto t = static_cast<Type>(type);
  check(static_cast<int64_t>(packed.size()) == packed_bytes(t, rows, columns), "wrong size of the packed array");
  return {t, rows, columns, packed.data()};
}

void multiply_codes(int type, Array<const uint8_t, 1> packed, int64_t rows, int64_t columns,
                    Array<const int8_t, 2> codes, Array<const float, 2> scales, Array<const int16_t, 2> sums,
                    Array<float, 2> out, Rows x_rows, Rows out_rows, int64_t begin, int64_t end) {
  const Matrix m = matrix(type, packed, rows, columns);
  check(takes_codes(m.type) && static_cast<int64_t>(codes.shape(1)) == columns && scales.size() * 32 == codes.size() &&
            sums.size() * 16 == codes.size(),
        "multiply: activations do not fit the matrix");
  const Activations x{nullptr, codes.data(), scales.data(), sums.data(), columns};
  run(m, x, static_cast<int64_t>(codes.shape(0)), x_rows, out, out_rows, begin, end);
}

void multiply_floats(int type, Array<const uint8_t, 1> packed, int64_t rows, int64_t columns,
                     Array<const float, 2> values, Array<float, 2> out, Rows x_rows, Rows out_rows, int64_t begin,
                     int64_t end) {
  const Matrix m = matrix(type, packed, rows, columns);
  check(!takes_codes(m.type) && !takes_words(m.type) && static_cast<int64_t>(values.shape(1)) == columns,
        "multiply: activations do not fit the matrix");
  const Activations x{values.data(), nullptr, nullptr, nullptr, columns};
  run(m, x, static_cast<int64_t>(values.shape(0)), x_rows, out, out_rows, begin, end);
}

void code(Array<const float, 2> x, Array<int16_t, 2> words, Array<float, 2> scales) {
  const auto rows = static_cast<int64_t>(x.shape(0)), columns = static_cast<int64_t>(x.shape(1));
  const auto stride = static_cast<int64_t>(words.shape(1));
  check(stride % kWordInputs == 0 && stride >= columns && scales.size() * kWordInputs == words.size() &&
            words.shape(0) == x.shape(0),
        "code_words: words must have a multiple of 64 columns, and a scale for each 64");
  nb::gil_scoped_release release;
  kernels().code_words(x.data(), columns, 0, rows, columns, words.data(), scales.data(), stride);
}

void multiply_words(int type, Array<const uint8_t, 1> packed, int64_t rows, int64_t columns,
                    Array<const int16_t, 2> words, Array<const float, 2> scales, Array<float, 2> out, Rows x_rows,
                    Rows out_rows, int64_t begin, int64_t end) {
  const Matrix m = matrix(type, packed, rows, columns);
  const auto stride = static_cast<int64_t>(words.shape(1));
  check(takes_words(m.type) && stride % kWordInputs == 0 && stride >= columns && scales.size() * kWordInputs == words.size(),
        "multiply: activations do not fit the matrix");
  const Activations x{nullptr, nullptr, scales.data(), nullptr, stride, words.data()};
  run(m, x, static_cast<int64_t>(words.shape(0)), x_rows, out, out_rows, begin, end);
}

void decode(int type, Array<const uint8_t, 1> packed, int64_t rows, int64_t columns, Array<const int32_t, 1> ids,
            Array<float, 2> out) {
  const Matrix m = matrix(type, packed, rows, columns);
  check(out.shape(0) == ids.size() && static_cast<int64_t>(out.shape(1)) == columns, "decode_rows: wrong shape of out");
  for (size_t i = 0; i < ids.size(); ++i)
    check(ids.data()[i] >= 0 && ids.data()[i] < rows, "decode_rows: row out of range");
  kernels().decode_rows(m, ids.data(), static_cast<int64_t>(ids.size()), out.data(), columns);
}

}  // namespace

void bind_linear(nb::module_& m) {
  m.def("isa", &isa_name, "The instruction set in use.");
  m.def("isa_doubt", &isa_doubt, "Why it is not the widest that the processor has, or ''.");
  m.def("linear_supported", [](int type) { return supported(static_cast<Type>(type)); });
  m.def("takes_codes", [](int type) { return takes_codes(static_cast<Type>(type)); });
  m.def("takes_words", [](int type) { return takes_words(static_cast<Type>(type)); });
  m.def("packed_bytes", [](int type, int64_t rows, int64_t columns) {
    return packed_bytes(static_cast<Type>(type), rows, columns);
  });
  m.def("pack", &pack_matrix, nb::arg("type"), nb::arg("source"), nb::arg("columns"), nb::arg("packed"));
  m.def("quantise_rows", &quantise, nb::arg("x"), nb::arg("codes"), nb::arg("scales"), nb::arg("sums"));
  m.def("multiply_codes", &multiply_codes, nb::arg("type"), nb::arg("packed"), nb::arg("rows"), nb::arg("columns"),
        nb::arg("codes"), nb::arg("scales"), nb::arg("sums"), nb::arg("out"), nb::arg("x_rows").none(),
        nb::arg("out_rows").none(), nb::arg("panel_begin"), nb::arg("panel_end"));
  m.def("code_words", &code, nb::arg("x"), nb::arg("words"), nb::arg("scales"));
  m.def("multiply_words", &multiply_words, nb::arg("type"), nb::arg("packed"), nb::arg("rows"), nb::arg("columns"),
        nb::arg("words"), nb::arg("scales"), nb::arg("out"), nb::arg("x_rows").none(), nb::arg("out_rows").none(),
        nb::arg("panel_begin"), nb::arg("panel_end"));
  m.def("multiply_floats", &multiply_floats, nb::arg("type"), nb::arg("packed"), nb::arg("rows"), nb::arg("columns"),
        nb::arg("values"), nb::arg("out"), nb::arg("x_rows").none(), nb::arg("out_rows").none(),
        nb::arg("panel_begin"), nb::arg("panel_end"));
  m.def("decode_rows", &decode, nb::arg("type"), nb::arg("packed"), nb::arg("rows"), nb::arg("columns"),
        nb::arg("ids"), nb::arg("out"));
  m.def("set_codebook", [](int type, Array<const int8_t, 2> values) {
    check(type >= 0 && type < 64, "set_codebook: no such type");
    set_codebook(static_cast<Type>(type), values.data(), static_cast<int64_t>(values.shape(0)),
                 static_cast<int64_t>(values.shape(1)));
  });
}

}  // namespace mill
