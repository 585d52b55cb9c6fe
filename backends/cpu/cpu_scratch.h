#pragma once

#include <cstdint>

#include "core/bytes.h"

namespace stagecoach {

/// Temporary memory of one thread for the time of a scope. Frames nest like calls, also when a
/// thread that waits for a parallel loop runs another tile meanwhile, and give their memory back to
/// the thread, not to the system, so nothing is allocated once the largest shape has been seen.
/// Memory may be handed to other threads that finish before the frame ends. Contents are undefined.
class ScratchFrame {
 public:
  ScratchFrame();
  ~ScratchFrame();
  ScratchFrame(const ScratchFrame&) = delete;
  ScratchFrame& operator=(const ScratchFrame&) = delete;

  /// `count` elements, aligned to 64 bytes.
  float* floats(int64_t count) { return static_cast<float*>(bytes(count * 4)); }
  uint32_t* words(int64_t count) { return static_cast<uint32_t*>(bytes(count * 4)); }
  double* doubles(int64_t count) { return static_cast<double*>(bytes(count * 8)); }
  void* bytes(ByteCount size);

 private:
  size_t chunk_;
  ByteCount used_;
};

}  // namespace stagecoach
