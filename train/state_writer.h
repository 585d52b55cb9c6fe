#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/task_pool.h"
#include "hal/host_worker.h"
#include "memory/range_pool.h"
#include "model/safetensors_writer.h"
#include "scheduler/block_reader.h"
#include "train/trainer.h"

namespace stagecoach {

/// Memory for copies of blocks that updates would overwrite before they are written.
using SaveCopies = std::shared_ptr<std::vector<std::byte>>;

/// sha256 of what a checkpoint's tensor files hold, in block order.
struct StateDigests {
  std::string weights, moments;
  std::string previous;  ///< empty: not kept
};

/// Writes the tensor files of a checkpoint while training goes on: trained weights as fp32, moments
/// as they are kept, with `async` the weights before those too. Hand it to Trainer::begin_reading.
/// What it cannot write it keeps as its status; training is not disturbed. Updates of what has not
/// been written wait, unless there is memory to copy it to. Thread rule: its queue's thread, but
/// for create, is_done, wait and what BlockReader says of copies.
class StateWriter final : public BlockReader {
 public:
  /// Creates the files in `folder`, which must exist. `trainer`'s state must outlive it.
  /// Without `copies` updates wait. Errors: those of file operations.
  static Result<std::shared_ptr<StateWriter>> create(const std::string& folder,
                                                     const Trainer& trainer,
                                                     SaveCopies copies = nullptr);
  ~StateWriter() override;

  HostQueue& queue() override { return *worker_; }
  int piece_count(int block) const override {
    return static_cast<int>(pieces_[static_cast<size_t>(block)].size());
  }
  void read(int block, int piece, bool from_copy) override;
  void finish() override;
  HostQueue& copy_queue() override { return *copier_; }
  bool reserve_copy(int block) override;
  void copy(int block, TaskPool& pool) override;
  void release_copy(int block) override;

  /// Whether all is on disk, or has failed.
  bool is_done() const { return is_done_; }
  /// Of all blocks that were copied so far. On the executor's thread.
  ByteCount copied_bytes() const { return copied_bytes_; }
  /// Returns when it is, once Trainer::finish_reading has returned. Errors: of the first operation
  /// that failed.
  Result<StateDigests> wait();

 private:
  /// One of the files, with where its tensors are.
  struct File {
    std::string path;
    std::vector<SafetensorsTensor> tensors;
    std::map<std::string, size_t, std::less<>> index;
    std::optional<SafetensorsWriter> writer;
  };
  /// Where a part of a piece goes.
  struct Part {
    File* file = nullptr;
    size_t tensor = 0;
    ByteCount first = 0, size = 0;
  };
  /// Weights, two moments with scales each, and the weights before.
  static constexpr size_t kMostParts = 6;
  /// Elements of one parameter.
  struct Piece {
    const ParameterInfo* parameter = nullptr;
    int64_t first = 0, count = 0;
    std::array<Part, kMostParts> parts;
    size_t part_count = 0;
    ByteCount place = 0;  ///< in the block's copy
  };
  using Sources = std::array<std::span<const std::byte>, kMostParts>;

  StateWriter(const Trainer& trainer, SaveCopies copies);
  Status open(const std::string& folder);
  void add_pieces(const ParameterBlock& block);
  void add_parts(Piece& piece);
  Sources gather(int block, const Piece& piece, std::span<float> values) const;
  Sources sources_of_copy(int block, const Piece& piece) const;
  Status write(const Piece& piece, const Sources& sources);
  Status finish_files();

  const Trainer& trainer_;
  File weights_, moments_, previous_;
  std::vector<std::vector<Piece>> pieces_;  ///< per block
  SaveCopies copies_;
  RangePool pool_of_copies_;
  std::vector<ByteCount> copy_bytes_, copy_places_;  ///< per block
  ByteCount copied_bytes_ = 0;
  std::vector<float> buffer_;
  Status status_;
  StateDigests digests_;
  std::atomic<bool> is_done_ = false;
  std::unique_ptr<TaskPool> pool_;
  std::unique_ptr<HostWorker> worker_, copier_;
};

}  // namespace stagecoach
