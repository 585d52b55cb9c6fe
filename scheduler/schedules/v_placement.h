#pragma once

namespace stagecoach {

struct ScheduleParameters;

/// Two model stages a device, folded: chunk 0 of rank r is stage r, chunk 1 is stage 2N - 1 - r, so
/// the first and the last stage share a device and hand-overs turn round without one.
inline int v_stage(int stages, int rank, int chunk) {
  return chunk == 0 ? rank : 2 * stages - 1 - rank;
}

/// Chunks a device of a folded placement, as `Schedule::chunks` asks.
inline int two_chunks(const ScheduleParameters&) {
  return 2;
}

}  // namespace stagecoach
