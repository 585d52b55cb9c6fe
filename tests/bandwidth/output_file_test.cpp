#include "tools/bandwidth/output_file.h"

#include <gtest/gtest.h>

#include "tools/exit_code.h"

namespace stagecoach {
namespace {

TEST(OutputFiles, AFullDiskIsNoGate) {
  Status full = resource_exhausted("cannot write '/x/a.json.12.0.tmp': No space left on device");
  Status said = output_failure("--out", "/x/a.json", full);
  EXPECT_EQ(exit_code_of(said.code()), kExitUsage);
  EXPECT_EQ(said.message(),
            "--out '/x/a.json' cannot be written: No space left on device; name another file");
  EXPECT_TRUE(output_failure("--out", "/x/a.json", Status::ok()).is_ok());
}

}  // namespace
}  // namespace stagecoach
