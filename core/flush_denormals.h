#pragma once

#include <cstdint>

namespace stagecoach {

/// While it lives, arithmetic of the calling thread reads denormal operands as zero and rounds
/// denormal results to zero, both keeping the sign. Without it an update whose moments have decayed
/// to denormals takes a hundred times as long. Loads, stores and whole-number work see all bits as
/// before. Nests. Thread rule: destroy on the thread that made it.
class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace stagecoach
