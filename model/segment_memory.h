#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "model/segment.h"

namespace stagecoach {

/// Where tensors start inside `saved` and `workspace`: multiples of this many bytes.
inline constexpr ByteCount kTensorAlignmentBytes = 256;

/// A tensor that needs workspace from step `first_step` to step `last_step`, both included.
struct WorkspaceRequest {
  ByteCount size = 0;
  int first_step = 0;
  int last_step = 0;
};

/// One offset a request, and the bytes that hold them all.
struct WorkspacePlan {
  std::vector<ByteCount> offsets;
  ByteCount size_bytes = 0;
};

/// Offsets at which tensors alive at the same step do not overlap: the largest tensor first, each
/// at the lowest place free during its life. Pure.
WorkspacePlan plan_workspace(std::span<const WorkspaceRequest> requests);

/// Which memory of a LayerRun a tensor lies in.
enum class Place : uint8_t {
  kNone,
  kInput,
  kOutput,
  kSaved,
  kWorkspace,
  kInputGradient,
  kOutputGradient,
};

/// A tensor's memory; `offset` counts inside kSaved and kWorkspace.
struct Slot {
  Place place = Place::kNone;
  ByteCount offset = 0;
};

/// How one kind of forward pass runs.
struct ForwardLayout {
  std::vector<Slot> activations;
  std::vector<uint8_t> runs;   ///< per segment: whether it runs (early stop skips some)
  bool copies_output = false;  ///< the output is kept in `saved` and copied to LayerRun::output
  ByteCount workspace_bytes = 0;
};

/// How one kind of backward pass runs.
struct BackwardLayout {
  std::vector<Slot> gradients;
  ByteCount workspace_bytes = 0;
};

/// Memory of a chain of segments for one micro-batch size. The last activation is kept like any
/// other when a segment's backward pass reads it, because LayerRun::output is not there in the
/// backward pass.
struct ChainLayout {
  ForwardLayout plain;        ///< output only
  ForwardLayout saving;       ///< saved and output
  ForwardLayout recomputing;  ///< saved only: segments that no backward pass depends on are skipped
  std::vector<Slot> kept;     ///< activations a backward pass may read
  ByteCount saved_bytes = 0;
  BackwardLayout whole;  ///< input and weight part of each segment in one go
  BackwardLayout split;  ///< all input parts, later all weight parts
};

/// Plans all passes over a chain that `validate_chain` accepts. Pure: depends on declarations and
/// rows.
ChainLayout plan_chain(std::span<const ActivationInfo> activations,
                       std::span<const SegmentIo* const> segments, int64_t rows);

/// Checks what segments declare; errors name the segment's position and the activation.
Status validate_chain(std::span<const ActivationInfo> activations,
                      std::span<const SegmentIo* const> segments);

}  // namespace stagecoach
