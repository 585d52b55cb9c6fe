#include "core/short_size.h"

#include <fmt/format.h>

namespace stagecoach {

std::string short_size(ByteCount size) {
  if (size >= kGiB && size % kGiB == 0) return fmt::format("{}G", size / kGiB);
  if (size >= kMiB && size % kMiB == 0) return fmt::format("{}M", size / kMiB);
  if (size >= kKiB && size % kKiB == 0) return fmt::format("{}K", size / kKiB);
  return std::to_string(size);
}

}  // namespace stagecoach
