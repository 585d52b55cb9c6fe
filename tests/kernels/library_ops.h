#pragma once

#include "backends/gpu/gpu_library.h"
#include "core/dtype.h"

namespace stagecoach {

// Which kinds of ops a test takes.
inline bool is_attention(OpKind kind) {
  return kind == OpKind::kAttentionForward || kind == OpKind::kAttentionBackward;
}
inline bool is_product(OpKind kind) {
  return library_might_serve(kind) && !is_attention(kind);
}

/// Expects every small case of the kinds that `takes` names, with `library` for what it serves, to
/// agree with the oracle.
void expect_library_as_oracle(DType dtype, GpuLibrary& library, bool (*takes)(OpKind kind));

}  // namespace stagecoach
