#include "train/token_source.h"

#include <algorithm>
#include <bit>

namespace stagecoach {

static_assert(std::endian::native == std::endian::little, "token files are little endian");

Status TokenSource::read_ids(int64_t first, int64_t number, int32_t* out) const {
  STAGECOACH_CHECK(first >= 0 && number >= 0 && first <= count - number);
  ByteCount offset = ids_offset + first * width_bytes;
  if (width_bytes == 4) return ids->read(offset, out, number * 4);
  std::vector<uint16_t> narrow(static_cast<size_t>(number));
  STAGECOACH_RETURN_IF_ERROR(ids->read(offset, narrow.data(), number * 2));
  std::copy(narrow.begin(), narrow.end(), out);
  return Status::ok();
}

Status TokenSource::read_targets(int64_t first, int64_t number, uint8_t* out) const {
  STAGECOACH_CHECK(first >= 0 && number >= 0 && first <= count - number);
  std::fill_n(out, number, uint8_t{1});
  if (mask != nullptr && number > 0) {
    int64_t first_byte = first / 8;
    int64_t bytes = (first + number - 1) / 8 - first_byte + 1;
    std::vector<uint8_t> bits(static_cast<size_t>(bytes));
    STAGECOACH_RETURN_IF_ERROR(mask->read(mask_offset + first_byte, bits.data(), bytes));
    for (int64_t i = 0; i < number; ++i) {
      int64_t bit = first + i - first_byte * 8;
      out[i] = (bits[static_cast<size_t>(bit / 8)] >> (bit % 8)) & 1;
    }
  }
  auto document = std::lower_bound(documents.begin(), documents.end(), first);
  for (; document != documents.end() && *document < first + number; ++document) {
    out[*document - first] = 0;
  }
  return Status::ok();
}

}  // namespace stagecoach
