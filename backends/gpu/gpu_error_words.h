#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "core/label.h"
#include "core/status.h"
#include "hal/ring_queue.h"

namespace stagecoach {

/// Words of page-locked memory in which kernels leave the number of a row whose id or label lies
/// outside the vocabulary. A kernel has no other way to tell: one that traps takes its whole
/// context along. Each op that may report gets a word, which is read when a mark behind it passes.
/// Thread rule: any thread.
class GpuErrorWords {
 public:
  static constexpr int kCount = 128;
  static constexpr uint64_t kNone = ~uint64_t{0};

  /// `words` are kCount of them, page-locked, and stay until `detach`.
  void attach(uint64_t* words) { words_ = words; }
  void detach();
  /// The word for operation `sequence`; one that is shared with the last when all are in use, null
  /// before `attach`.
  uint64_t* take(uint64_t sequence, std::string_view verb, const Label& label);
  /// Reads the words of all operations up to `sequence`, which have finished. The failure names the
  /// first that reported, and is the answer for every later sequence too.
  Status check(uint64_t sequence, const FailureSite& stream);

 private:
  struct Pending {
    uint64_t* word = nullptr;
    uint64_t sequence = 0;
    std::string_view verb;  ///< static text
    Label label;
  };

  std::mutex mutex_;
  uint64_t* words_ = nullptr;
  uint64_t next_ = 0;
  RingQueue<Pending> pending_;
  Status first_;
};

}  // namespace stagecoach
