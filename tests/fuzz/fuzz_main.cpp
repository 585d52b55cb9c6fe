// libFuzzer's entry; STAGECOACH_FUZZ_TARGET names the target this executable is of.
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const stagecoach::FuzzTarget& target : stagecoach::fuzz_targets()) {
    if (std::string_view(target.name) != STAGECOACH_FUZZ_TARGET) continue;
    target.run({data, size});
    return 0;
  }
  std::abort();
}
