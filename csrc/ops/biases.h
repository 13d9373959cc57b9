// What attention adds to a score by the distance of key and query: ALiBi's slopes, T5's buckets.
#pragma once

#include <cmath>
#include <cstdint>

namespace mill::TM_ISA {

// T5's bucket of a relative position, both directions.
inline int64_t bucket(int64_t relative, int64_t buckets) {
  const int64_t half = buckets / 2, exact = half / 2, distance = relative < 0 ? -relative : relative;
  const int64_t side = relative > 0 ? half : 0;
  if (distance < exact) return side + distance;
  const float at = std::log(static_cast<float>(distance) / static_cast<float>(exact)) /
                   std::log(128.0f / static_cast<float>(exact)) * static_cast<float>(half - exact);
  const int64_t far = exact + static_cast<int64_t>(at);
  return side + (far < half - 1 ? far : half - 1);
}

// ALiBi's slope of a head: powers of 2^(−most/p), p the power of two below `heads`; the rest interleave.
inline float slope_of(int64_t head, int64_t heads, float most) {
  int64_t whole = 1;
  while (2 * whole <= heads) whole *= 2;
  const float n = static_cast<float>(whole);
  return head < whole ? std::pow(2.0f, -most * static_cast<float>(head + 1) / n)
                      : std::pow(2.0f, -most * static_cast<float>(2 * (head - whole) + 1) / (2.0f * n));
}

}  // namespace mill::TM_ISA
