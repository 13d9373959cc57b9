"""The comparison with llama.cpp in parts: what is compared (`cells`), on which files (`models`), how it is run (`measure`),
what the machine would allow (`limits`), where results are kept (`results`) and how they are shown (`report`, `plot`).
"""
