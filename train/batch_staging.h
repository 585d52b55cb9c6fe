#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/status.h"
#include "memory/arena.h"
#include "scheduler/device_lane.h"
#include "scheduler/network.h"
#include "train/host_tensor.h"

namespace stagecoach {

/// Pinned memory for one batch, cut into micro-batches: inputs, labels and what else layers read
/// (RowInput) on their way in, outputs of the last layer on their way out. Thread rule: one thread
/// at a time, never while a pass runs.
class BatchStaging {
 public:
  static Result<std::unique_ptr<BatchStaging>> create(Device& pinning_device,
                                                      const Network& network,
                                                      const MicroBatchShape& shape,
                                                      int micro_batches);

  /// Pinned bytes that `create` allocates. Pure.
  static ByteCount bytes(const Network& network, const MicroBatchShape& shape, int micro_batches);

  /// Number of targets of a batch: labels that are not ignored (-1, or -100 as PyTorch has it); all
  /// rows when labels are real numbers. With `allow_short`, fewer sequences are allowed. Errors:
  /// invalid argument for shapes, dtypes, and other negative labels, naming their place.
  Result<int64_t> count_targets(const HostTensor& inputs, const HostTensor& labels,
                                bool allow_short) const;
  /// Ok for the document starts of a batch of `sequences` sequences, int32 [sequences, sequence]:
  /// each is its own position, or that of the row before; or for none at all, which says that each
  /// sequence is one document. Errors: invalid argument naming the place; for any where the network
  /// does not take them.
  Status check_document_starts(const HostTensor& starts, int64_t sequences) const;
  /// Copies in a batch that these accept, filled up with ignored labels.
  void load(const HostTensor& inputs, const HostTensor& labels, const HostTensor& document_starts);
  /// The same without labels, for inference, each sequence one document; fewer sequences are always
  /// allowed.
  Status load_inputs(const HostTensor& inputs);

  Pinning pinning() const { return arena_->pinning(); }
  /// Reports are for training alone.
  void fill_views(PassInput& pass) const;
  /// Sum of the last layer's rows, in order, in fp64: the sum of losses.
  double sum_of_losses() const;
  /// Sum of what layers report, in fp64, divided by the number of layers that do; none: none does.
  std::optional<double> mean_of_reports() const;
  /// Rows of the first `sequences` sequences of the last layer's output.
  std::vector<float> outputs(int64_t sequences) const;

 private:
  BatchStaging() = default;
  Status check(const HostTensor& source, const BoundaryInfo& info, const char* what,
               bool allow_short) const;
  void copy_in(const HostTensor& source, const BoundaryInfo& info, const char* what,
               uint32_t filler, std::vector<BufferView>& targets);
  void load_documents(const HostTensor& starts);
  int64_t batch() const { return shape_.sequences * micro_batches_; }

  MicroBatchShape shape_;
  int64_t micro_batches_ = 0;
  BoundaryInfo input_, label_, output_;
  std::vector<ByteCount> report_offsets_;  ///< of layers that report, among their micro-batch's
  std::optional<Arena> arena_;
  std::vector<BufferView> inputs_, outputs_, reports_;
  PerRowInput<std::vector<BufferView>> rows_;  ///< of those that the network takes
};

}  // namespace stagecoach
