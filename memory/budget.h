#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/dtype.h"
#include "memory/host_limits.h"

namespace stagecoach {

/// How the training state of a run is kept.
struct StateFormat {
  DType compute_dtype = DType::kBF16;  ///< bf16: split master; fp16, fp32: fp32 master
  bool is_asynchronous = false;        ///< two versions of what devices read
  bool has_several_rounds = false;     ///< gradients are added up in fp32 over rounds
  double moment_bytes = 8;             ///< of an element: two fp32 moments
};

/// Host bytes of the state of one element.
struct ElementBytes {
  double master = 0;  ///< with the high half, where the master is split
  double copies = 0;  ///< of what devices read beside the master
  double moments = 0;
  double gradients = 0;

  double total() const { return master + copies + moments + gradients; }
};

/// By the format. A frozen element is kept once, as devices read it. Pure.
ElementBytes element_bytes(const StateFormat& format, bool is_trainable);

/// A block as far as its memory goes.
struct BudgetBlock {
  int64_t element_count = 0;
  bool is_trainable = true;
};

/// What one device needs, and what it has.
struct DeviceBudget {
  std::string device;  ///< "cuda:0"
  ByteCount need_bytes = 0;
  ByteCount free_bytes = 0;
};

/// What is added up.
struct BudgetRequest {
  StateFormat format;
  std::vector<BudgetBlock> blocks;
  ByteCount activation_bytes = 0;  ///< boundaries between stages, in pinned memory
  ByteCount staging_bytes = 0;     ///< batches, losses, checkpoints being written
  std::vector<DeviceBudget> devices;
};

/// Bytes of a run before anything is allocated.
struct Budget {
  ByteCount masters = 0, copies = 0, moments = 0, gradients = 0;
  ByteCount landing_ring = 0;  ///< twice the largest block's gradient: sites, shards and rounds
  ByteCount activations = 0, staging = 0;
  /// Of all these, what copy engines reach: high halves or copies, gradients, ring, activations and
  /// staging.
  ByteCount pinned = 0;
  int64_t trainable_elements = 0;
  std::vector<DeviceBudget> devices;

  ByteCount host_bytes() const;
  /// State alone, without ring, activations and staging; 0 without trainable elements.
  double state_bytes_per_element() const;
};

/// Adds everything up. Pure.
Budget make_budget(const BudgetRequest& request);

/// One line for every limit that `budget` does not keep: what is needed, what there is and by what
/// limit, and what to change. Empty: it fits. Pinned memory past the lockable limit is no such
/// line where drivers pin by themselves (`asks_lock_limit` false). Pure.
std::vector<std::string> budget_problems(const Budget& budget, const HostLimits& limits,
                                         bool asks_lock_limit);

}  // namespace stagecoach
