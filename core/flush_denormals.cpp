#include "core/flush_denormals.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif !defined(__aarch64__)
#error "how this processor flushes denormals to zero is not known here"
#endif

namespace stagecoach {

namespace {

#if defined(__x86_64__)

// Of MXCSR: flush to zero, denormals are zero.
constexpr uint64_t kFlush = 0x8040;

uint64_t read_control() {
  return _mm_getcsr();
}
void write_control(uint64_t control) {
  _mm_setcsr(static_cast<unsigned>(control));
}

#else

// Of FPCR: flush to zero, operands too.
constexpr uint64_t kFlush = uint64_t{1} << 24;

uint64_t read_control() {
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
void write_control(uint64_t control) {
  asm volatile("msr fpcr, %0" : : "r"(control));
}

#endif

}  // namespace

FlushDenormals::FlushDenormals() : saved_(read_control()) {
  write_control(saved_ | kFlush);
}

FlushDenormals::~FlushDenormals() {
  write_control(saved_);
}

}  // namespace stagecoach
