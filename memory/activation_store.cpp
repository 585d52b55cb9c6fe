#include "memory/activation_store.h"

#include <algorithm>

namespace stagecoach {

ByteCount ActivationStore::bytes(const std::vector<ByteCount>& boundary_bytes, int micro_batches) {
  ByteCount total = 0;
  for (ByteCount bytes : boundary_bytes) total += micro_batches * Arena::padded(bytes);
  return std::max(total, Arena::kAlignment);  // no arena is empty
}

Result<ActivationStore> ActivationStore::create(Device& pinning_device,
                                                const std::vector<ByteCount>& boundary_bytes,
                                                int micro_batches) {
  ActivationStore store;
  store.micro_batches_ = micro_batches;
  STAGECOACH_ASSIGN_OR_RETURN(
      store.arena_, Arena::create_pinned(pinning_device, bytes(boundary_bytes, micro_batches),
                                         "boundary activations"));
  for (ByteCount bytes : boundary_bytes) {
    for (int m = 0; m < micro_batches; ++m) {
      store.pieces_.push_back(bytes > 0 ? store.arena_->take(bytes) : BufferView{});
    }
  }
  return store;
}

}  // namespace stagecoach
