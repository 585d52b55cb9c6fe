#pragma once

#include <memory>
#include <vector>

#include "core/status.h"
#include "hal/device.h"
#include "hal/tensor.h"

namespace stagecoach {

/// Operations over one stream of each of R devices. `streams[r]` orders the work of rank r; results
/// are ready at the returned timepoint of each rank. Sums are taken in rank order in fp32 and
/// rounded once, so that they do not depend on timing. Calls only enqueue.
/// Thread rule: one thread at a time.
class Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank_count() const = 0;
  /// Every `out[r]` becomes in[0], in[1], … in rank order. All `in` are equally long; out is R
  /// times that. `in[r]` may be its own place inside `out[r]`.
  virtual Result<std::vector<Timepoint>> all_gather(const std::vector<TensorView>& in,
                                                    const std::vector<TensorView>& out) = 0;
  /// `out[r]` (in's length / R) becomes the sum over ranks of piece r of their `in`.
  virtual Result<std::vector<Timepoint>> reduce_scatter(const std::vector<TensorView>& in,
                                                        const std::vector<TensorView>& out) = 0;
  /// `out` on rank `root` becomes the sum over ranks of `in`.
  virtual Result<std::vector<Timepoint>> reduce(const std::vector<TensorView>& in,
                                                const TensorView& out, int root) = 0;
};

/// A collective that needs nothing but copies through pinned host memory and accumulate kernels:
/// works on any devices of one backend. `max_piece_bytes` bounds the largest piece it moves at once
/// and sizes its staging, allocated here: one pinned piece and three device pieces a rank. The
/// streams must outlive it; it may be destroyed while its work is still queued.
Result<std::unique_ptr<Collective>> make_host_staged_collective(std::vector<Stream*> streams,
                                                                ByteCount max_piece_bytes);

}  // namespace stagecoach
