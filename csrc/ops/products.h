// The weights of a product as the replay holds them.
#pragma once

#include "linear/linear.h"

namespace mill {

// E matrices of one shape, one after another; `stride` bytes apart.
struct Experts {
  linear::Type type;
  int64_t count, rows, columns, stride;
  const uint8_t* data;

  linear::Matrix at(int64_t e) const { return {type, rows, columns, data + e * stride}; }
};

}  // namespace mill
