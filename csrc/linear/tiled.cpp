// See tiled.h.
#include "linear/tiled.h"

#ifdef TM_HAS_amx

#include <chrono>
#include <cstring>
#include <new>
#include <vector>

namespace mill {
namespace avx512 { extern const linear::Kernels linear_kernels; }

namespace linear {
namespace {

struct Numbers {
  uint32_t state = 1;
  uint8_t byte() { return static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24); }
};

struct Lines {  // bytes that begin on a line
  explicit Lines(int64_t n) : at(static_cast<uint8_t*>(::operator new(static_cast<size_t>(n), std::align_val_t{64}))) {}
  ~Lines() { ::operator delete(at, std::align_val_t{64}); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  uint8_t* at;
};

// A product of random numbers, as any kernels may be asked for it.
class Trial {
 public:
  Trial(Type type, int64_t rows, int64_t columns, int64_t n)
      : type_(type), rows_(rows), columns_(columns), n_(n), d_(described(type)),
        packed_(panels(rows) * packed_panel_bytes(d_, columns)), scratch_(static_cast<int64_t>(kScratchBytes)),
        codes_(static_cast<size_t>(n * columns)), scales_(codes_.size() / 32), sums_(codes_.size() / 16) {
    Numbers numbers;
    pack(numbers);
    std::vector<float> values(codes_.size());
    for (float& value : values) value = static_cast<float>(static_cast<int8_t>(numbers.byte())) * 0.37f;
    kernels().quantise_rows(values.data(), columns, 0, n, columns, codes_.data(), scales_.data(), sums_.data(), columns);
  }

  std::vector<float> run(Multiply* multiply) const {
    std::vector<float> out(static_cast<size_t>(n_ * rows_), -1.0f);
    const Matrix m{type_, rows_, columns_, packed_.at};
    const Activations x{nullptr, codes_.data(), scales_.data(), sums_.data(), columns_};
    multiply(m, 0, panels(rows_), x, nullptr, n_, out.data(), rows_, nullptr, scratch_.at);
    return out;
  }

 private:
  static const Kernels& kernels() { return avx512::linear_kernels; }
  static Description described(Type type) {
    Description d{};
    kernels().describe(type, &d);
    return d;
  }

  void pack(Numbers& numbers) {  // bytes of the file, of which any two are an f16 below 2
    const int64_t row = columns_ / d_.file_inputs * d_.file_bytes, panel = packed_panel_bytes(d_, columns_);
    std::vector<uint8_t> rows(static_cast<size_t>(panels(rows_) * kPanel * row));
    for (uint8_t& byte : rows) byte = numbers.byte() & 0xBF;
    for (int64_t p = 0; p < panels(rows_); ++p) {
      const uint8_t* at[kPanel];
      for (int64_t r = 0; r < kPanel; ++r) at[r] = rows.data() + (p * kPanel + r) * row;
      kernels().pack_panel(type_, at, columns_, packed_.at + p * panel);
    }
  }

  Type type_;
  int64_t rows_, columns_, n_;
  Description d_;
  Lines packed_, scratch_;
  std::vector<int8_t> codes_;
  std::vector<float> scales_;
  std::vector<int16_t> sums_;
};

double seconds(const Trial& trial, Multiply* multiply) {  // the least of several
  using Clock = std::chrono::steady_clock;
  double least = 1.0;
  for (int i = 0; i < 5; ++i) {
    const Clock::time_point start = Clock::now();
    trial.run(multiply);
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    least = took < least ? took : least;
  }
  return least;
}

}  // namespace

bool agrees(Multiply* multiply, Type type) {
  const Trial trial(type, 37, 768, 40);  // odd rows; more than one chunk of 512
  const std::vector<float> expected = trial.run(avx512::linear_kernels.multiply), found = trial.run(multiply);
  return std::memcmp(expected.data(), found.data(), expected.size() * sizeof(float)) == 0;
}

bool pays(Multiply* multiply) {
  const Trial trial(Type::Q4_K, 256, 2048, 64);
  return seconds(trial, multiply) < seconds(trial, avx512::linear_kernels.multiply);
}

}  // namespace linear
}  // namespace mill

#endif
