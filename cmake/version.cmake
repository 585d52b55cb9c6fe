# The commit the binary was built from, for `stagecoach --version`.
set(STAGECOACH_COMMIT "unknown")
find_package(Git QUIET)
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${CMAKE_SOURCE_DIR} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE STAGECOACH_GIT_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE
                  ERROR_QUIET RESULT_VARIABLE STAGECOACH_GIT_RESULT)
  if(STAGECOACH_GIT_RESULT EQUAL 0)
    set(STAGECOACH_COMMIT ${STAGECOACH_GIT_COMMIT})
  endif()
endif()
configure_file(${CMAKE_SOURCE_DIR}/cmake/version.h.in ${CMAKE_BINARY_DIR}/generated/stagecoach_version.h @ONLY)
