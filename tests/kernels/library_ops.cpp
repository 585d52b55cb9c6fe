#include "tests/kernels/library_ops.h"

#include <gtest/gtest.h>

#include "tests/kernels/op_case.h"

namespace stagecoach {

void expect_library_as_oracle(DType dtype, GpuLibrary& library, bool (*takes)(OpKind kind)) {
  auto oracle = oracle_machine();
  auto machine = emulated_machine(&library);
  CaseMaker maker(7);
  for (const auto& make : op_cases(dtype, false)) {
    OpCase test = make(maker);
    if (!takes(test.call.kind)) continue;
    SCOPED_TRACE(std::string(op_kind_name(test.call.kind)) + ": " + test.name);
    Result<OpOutputs> actual = machine->run(test);
    Result<OpOutputs> expected = oracle->run(test);
    Result<OpOutputs> exact = oracle->run(in_fp32(test));
    ASSERT_TRUE(expected.is_ok() && exact.is_ok());
    ASSERT_TRUE(actual.is_ok()) << actual.status().to_string();
    EXPECT_EQ(compare_outputs(test, *actual, *expected, *exact), "");
  }
}

}  // namespace stagecoach
