#include "scheduler/device_share.h"

#include <algorithm>

#include "core/check.h"

namespace stagecoach {

std::vector<int> share_updates(const std::vector<UpdateLoad>& blocks, double share, int devices) {
  STAGECOACH_CHECK(share >= 0 && share <= 1 && devices > 0);
  std::vector<int> device_of(blocks.size(), -1);
  std::vector<int64_t> elements_of(static_cast<size_t>(devices), 0);
  double owed = 0;  // elements that devices should have had by now and have not
  for (size_t block = 0; block < blocks.size(); ++block) {
    auto elements = static_cast<double>(blocks[block].elements);
    owed += share * elements;
    if (elements <= 0 || !blocks[block].fits_on_device || owed < elements / 2) continue;
    auto least = std::min_element(elements_of.begin(), elements_of.end());
    *least += blocks[block].elements;
    device_of[block] = static_cast<int>(least - elements_of.begin());
    owed -= elements;
  }
  return device_of;
}

}  // namespace stagecoach
