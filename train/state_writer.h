#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/task_pool.h"
#include "hal/host_worker.h"
#include "model/safetensors_writer.h"
#include "scheduler/block_reader.h"
#include "train/trainer.h"

namespace stagecoach {

/// sha256 of what a checkpoint's tensor files hold, in block order.
struct StateDigests {
  std::string weights, moments;
  std::string previous;  ///< empty: not kept
};

/// Writes the tensor files of a checkpoint while training goes on: trained weights as fp32, moments
/// as they are kept, with `async` the weights before those too. Hand it to Trainer::begin_reading.
/// What it cannot write it keeps as its status; training is not disturbed. Thread rule: its queue's
/// thread, but for create, is_done and wait.
class StateWriter final : public BlockReader {
 public:
  /// Creates the files in `folder`, which must exist and `trainer`'s state outlive. Errors: those
  /// of file operations.
  static Result<std::shared_ptr<StateWriter>> create(const std::string& folder,
                                                     const Trainer& trainer);
  ~StateWriter() override;

  HostQueue& queue() override { return *worker_; }
  int piece_count(int block) const override {
    return static_cast<int>(pieces_[static_cast<size_t>(block)].size());
  }
  void read(int block, int piece) override;
  void finish() override;

  /// Whether all is on disk, or has failed.
  bool is_done() const { return is_done_; }
  /// Returns when it is, once Trainer::finish_reading has returned. Errors: of the first operation
  /// that failed.
  Result<StateDigests> wait();

 private:
  /// Elements of one parameter.
  struct Piece {
    const ParameterInfo* parameter = nullptr;
    int64_t first = 0, count = 0;
  };
  /// One of the files, with where its tensors are.
  struct File {
    std::string path;
    std::vector<SafetensorsTensor> tensors;
    std::map<std::string, size_t, std::less<>> index;
    std::optional<SafetensorsWriter> writer;
  };

  explicit StateWriter(const Trainer& trainer) : trainer_(trainer) {}
  Status open(const std::string& folder);
  Status read_piece(int block, const Piece& piece);
  Status read_moments(int block, const Piece& piece);
  static Status write(File& file, const std::string& name, ByteCount first,
                      std::span<const std::byte> bytes);
  Status finish_files();

  const Trainer& trainer_;
  File weights_, moments_, previous_;
  std::vector<std::vector<Piece>> pieces_;  ///< per block
  std::vector<float> buffer_;
  Status status_;
  StateDigests digests_;
  std::atomic<bool> is_done_ = false;
  std::unique_ptr<TaskPool> pool_;
  std::unique_ptr<HostWorker> worker_;
};

}  // namespace stagecoach
