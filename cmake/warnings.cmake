# Warnings every target is built with; they are errors so that none is ever ignored.
set(STAGECOACH_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
    -Wno-unused-parameter -Wno-missing-field-initializers -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 sees overlaps in std::string's operator+ that are not there (GCC bug 105651).
  list(APPEND STAGECOACH_WARNINGS -Wno-restrict)
  if(STAGECOACH_SANITIZE)
    # Instrumented code hides initialisations from this warning; the plain build has it on.
    list(APPEND STAGECOACH_WARNINGS -Wno-maybe-uninitialized)
  endif()
endif()
