#include "memory/activation_store.h"

namespace stagecoach {

Result<ActivationStore> ActivationStore::create(Device& pinning_device,
                                                const std::vector<ByteCount>& boundary_bytes,
                                                int micro_batches) {
  ActivationStore store;
  store.micro_batches_ = micro_batches;
  ByteCount total = 0;
  for (ByteCount bytes : boundary_bytes) total += 2 * micro_batches * Arena::padded(bytes);
  STAGECOACH_ASSIGN_OR_RETURN(store.arena_,
                              Arena::create_pinned(pinning_device, total, "boundary activations"));
  for (ByteCount bytes : boundary_bytes) {
    for (int m = 0; m < micro_batches; ++m) {
      store.activations_.push_back(bytes > 0 ? store.arena_->take(bytes) : BufferView{});
      store.gradients_.push_back(bytes > 0 ? store.arena_->take(bytes) : BufferView{});
    }
  }
  return store;
}

}  // namespace stagecoach
