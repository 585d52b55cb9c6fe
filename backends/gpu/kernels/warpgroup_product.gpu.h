#pragma once

#include "backends/gpu/kernels/shared_tile.gpu.h"

namespace stagecoach {

// wgmma: four groups of lanes multiply 64 rows at a time, asynchronously. Results lie in registers
// as those of tile_product.gpu.h do, 16 rows to a group.

#if STAGECOACH_WARPGROUP_UNITS
/// What wgmma is told of an operand in shared memory: where it starts, how far apart its panels
/// lie (only where K is not the contiguous side), groups of eight lines 1024 bytes apart.
template <typename T, int Lines, bool DepthFirst>
struct MatrixDescription {
  uint64_t start;

  __device__ explicit MatrixDescription(const SwizzledOperand<T, Lines, DepthFirst>& operand) {
    constexpr int kPanel = SharedTile<T, Lines>::kPanel;
    constexpr int kPanelElements = SharedTile<T, Lines>::kPanelElements;
    constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
    constexpr uint64_t kLines = uint64_t{1024 / 16} << 32;
    constexpr uint64_t kPanels = uint64_t{kPanelElements * sizeof(T) / 16} << 16;
    int place = DepthFirst ? operand.first * kPanel : operand.first / kPanel * kPanelElements;
    int address = static_cast<int>(shared_address(operand.tile.data + place) >> 4);
    start = kSwizzle128 | kLines | kPanels | static_cast<unsigned>(same_in_lanes(address));
  }
  /// 16 steps of K from `k`, a constant, on. Pieces of the first of eight lines stand in order, so
  /// offsets are plain sums.
  __device__ uint64_t at(int k) const {
    constexpr int kPanel = SharedTile<T, Lines>::kPanel;
    constexpr int kPanelElements = SharedTile<T, Lines>::kPanelElements;
    int place = DepthFirst ? k / kPanel * kPanelElements + k % kPanel : k * kPanel;
    return start + static_cast<unsigned>(place * static_cast<int>(sizeof(T)) / 16);
  }
};
template <typename T, int Lines, bool DepthFirst>
__device__ inline MatrixDescription<T, Lines, DepthFirst> describe(
    const SwizzledOperand<T, Lines, DepthFirst>& operand) {
  return MatrixDescription<T, Lines, DepthFirst>(operand);
}

#define STAGECOACH_SUMS_4(c, n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define STAGECOACH_SUMS_16(c, n)                                                     \
  STAGECOACH_SUMS_4(c, n), STAGECOACH_SUMS_4(c, n + 1), STAGECOACH_SUMS_4(c, n + 2), \
      STAGECOACH_SUMS_4(c, n + 3)
#define STAGECOACH_SUMS_32(c, n) STAGECOACH_SUMS_16(c, n), STAGECOACH_SUMS_16(c, n + 4)
#define STAGECOACH_SUMS_64(c, n) STAGECOACH_SUMS_32(c, n), STAGECOACH_SUMS_32(c, n + 8)
#define STAGECOACH_SUMS_128(c, n) STAGECOACH_SUMS_64(c, n), STAGECOACH_SUMS_64(c, n + 16)

#define STAGECOACH_NAMES_32                                                                    \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24," \
  "%25,%26,%27,%28,%29,%30,%31"
#define STAGECOACH_NAMES_64                                                                   \
  STAGECOACH_NAMES_32                                                                         \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53," \
  "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define STAGECOACH_NAMES_128                                                                    \
  STAGECOACH_NAMES_64                                                                           \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,"   \
  "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106," \
  "%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,"  \
  "%125,%126,%127"

/// For one type and number of columns (NUMBERS = COLUMNS / 2 a lane): products whose left operand
/// lies in shared memory, and in registers. `add`: 0 to begin sums. AT..: places after the sums'.
#define STAGECOACH_WGMMA(T, NAME, COLUMNS, NUMBERS, AT0, AT1, AT2, AT3, AT4, AT5, AT6)             \
  template <bool ADepthFirst, bool BDepthFirst>                                                    \
  __device__ inline void warpgroup_multiply_add(float(&c)[COLUMNS / 8][4], uint64_t a, uint64_t b, \
                                                int add, T) {                                      \
    asm volatile("{.reg .pred p;\nsetp.ne.b32 p, " AT2                                             \
                 ", 0;\n"                                                                          \
                 "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." #NAME "." #NAME           \
                 " {" STAGECOACH_NAMES_##NUMBERS "}, " AT0 ", " AT1 ", p, 1, 1, " AT3 ", " AT4     \
                                                 ";}\n"                                            \
                 : STAGECOACH_SUMS_##NUMBERS(c, 0)                                                 \
                 : "l"(a), "l"(b), "r"(add), "n"(ADepthFirst ? 0 : 1), "n"(BDepthFirst ? 0 : 1));  \
  }                                                                                                \
  template <bool BDepthFirst>                                                                      \
  __device__ inline void warpgroup_multiply_add(float(&c)[COLUMNS / 8][4], const uint32_t(&a)[4],  \
                                                uint64_t b, int add, T) {                          \
    asm volatile("{.reg .pred p;\nsetp.ne.b32 p, " AT5                                             \
                 ", 0;\n"                                                                          \
                 "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." #NAME "." #NAME           \
                 " {" STAGECOACH_NAMES_##NUMBERS "}, {" AT0 "," AT1 "," AT2 "," AT3 "}, " AT4      \
                                                 ", p, 1, 1, " AT6 ";}\n"                          \
                 : STAGECOACH_SUMS_##NUMBERS(c, 0)                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add),                   \
                   "n"(BDepthFirst ? 0 : 1));                                                      \
  }
#define STAGECOACH_WGMMA_COLUMNS(T, NAME)                                             \
  STAGECOACH_WGMMA(T, NAME, 64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")  \
  STAGECOACH_WGMMA(T, NAME, 128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70") \
  STAGECOACH_WGMMA(T, NAME, 256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")

/// The instruction for each width and type.
STAGECOACH_WGMMA_COLUMNS(BF16, bf16)
STAGECOACH_WGMMA_COLUMNS(F16, f16)

/// Keeps reads and writes of sums on this side of what happens to them asynchronously.
template <int Tiles>
__device__ inline void pin_sums(float (&sums)[Tiles][4]) {
#pragma unroll
  for (int n = 0; n < Tiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[n][i])::"memory");
  }
}
#endif

/// Before a product whose registers have been written since the last; after a product or several;
/// and a wait until only the last `Pending` commits may be unfinished. Nothing unless products are
/// `Asynchronous`.
template <bool Asynchronous>
__device__ inline void products_begin() {
#if STAGECOACH_WARPGROUP_UNITS
  if constexpr (Asynchronous) asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
template <bool Asynchronous>
__device__ inline void products_commit() {
#if STAGECOACH_WARPGROUP_UNITS
  if constexpr (Asynchronous) asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <bool Asynchronous, int Pending, int Tiles>
__device__ inline void products_wait(float (&sums)[1][Tiles][4]) {
#if STAGECOACH_WARPGROUP_UNITS
  if constexpr (Asynchronous) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
    pin_sums(sums[0]);
  }
#endif
}

}  // namespace stagecoach
