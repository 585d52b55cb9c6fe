#pragma once

namespace stagecoach::internal {

/// Prints the broken expectation and ends the process.
[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace stagecoach::internal

/// Ends the process when a programmer's expectation does not hold. On in every build: the control
/// plane is cheap, and a wrong answer costs more than a stop. Never for user input.
#define STAGECOACH_CHECK(expression)                                                          \
  do {                                                                                        \
    if (!(expression)) ::stagecoach::internal::check_failed(#expression, __FILE__, __LINE__); \
  } while (false)
