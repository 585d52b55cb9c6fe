#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backends/gpu/gpu_library_work.h"
#include "backends/gpu/gpu_types.h"
#include "core/bytes.h"
#include "core/status.h"
#include "hal/op_call.h"

namespace stagecoach {

/// Where a library call runs: the stream, and scratch memory that is the call's alone. Plain data.
struct GpuLibraryPlace {
  GpuStreamHandle stream = nullptr;
  uint64_t scratch = 0;
  ByteCount scratch_bytes = 0;
};

/// The vendor's math libraries in one device context. Answers and algorithms are kept per shape:
/// found when a shape is first seen, a pure function of shape, card and library version, and
/// neither searched nor allocated for again. When more shapes than the cache holds are in use, the
/// one used longest ago is found again.
/// Thread rule: any thread, with the device's context current; calls take turns.
class GpuLibrary {
 public:
  virtual ~GpuLibrary() = default;

  /// Scratch memory with which the library computes such a product, or none: the caller's own
  /// kernel serves it (said once in the log). Errors: what else the library reported.
  virtual Result<std::optional<ByteCount>> find_product(const GpuProductShape& shape) = 0;
  /// Queues a product for which find_product gave a size.
  virtual Status run_product(const GpuProductShape& shape, const GpuProductOperands& operands,
                             const GpuLibraryPlace& place) = 0;
  /// The same for attention.
  virtual Result<std::optional<ByteCount>> find_attention(const GpuAttentionShape& shape) = 0;
  virtual Status run_attention(const GpuAttentionShape& shape, const GpuAttentionOperands& operands,
                               const GpuLibraryPlace& place) = 0;

  /// For `devices --verbose`; empty: not this library's.
  virtual std::string provider(OpKind kind) const = 0;
};

/// Whether libraries are asked for ops of this kind.
constexpr bool library_might_serve(OpKind kind) {
  switch (kind) {
    case OpKind::kMatmul:
    case OpKind::kAttentionForward:
    case OpKind::kAttentionBackward:
    case OpKind::kLinearCrossEntropyForward:
    case OpKind::kLinearCrossEntropyBackwardInput:
    case OpKind::kLinearCrossEntropyBackwardWeight:
      return true;
    default:
      return false;
  }
}

/// What of a device decides which libraries it opens and how they compute. Plain data.
struct GpuLibraryRequest {
  static constexpr ByteCount kProductScratch = ByteCount{32} << 20;
  static constexpr ByteCount kAttentionScratch = ByteCount{384} << 20;

  std::string device;             ///< for messages
  bool fp16_accumulate = false;   ///< fp16 products may be summed in fp16
  bool is_deterministic = false;  ///< only what gives the same bits every run
  /// Most scratch memory of one call. Less than the constants on small devices only, so that on
  /// others algorithms do not depend on the device's memory.
  ByteCount product_scratch = kProductScratch;
  ByteCount attention_scratch = kAttentionScratch;

  /// Keeps scratch within what a device sets aside for it, beside what kernels need.
  void limit_scratch(ByteCount set_aside) {
    constexpr ByteCount kAlignment = 256;
    product_scratch = std::min(kProductScratch, set_aside / 4 / kAlignment * kAlignment);
    attention_scratch = std::min(kAttentionScratch, set_aside / 2 / kAlignment * kAlignment);
  }
};

/// Opens the libraries for the current context; null: there are none for this backend. A library
/// that is missing or broken is said in the log and by `provider`, not an error.
using GpuLibraryOpener = std::function<std::unique_ptr<GpuLibrary>(const GpuLibraryRequest&)>;

}  // namespace stagecoach
