# Everything comes from distribution packages; cmake/packages.txt lists them for the scripts.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(dnnl CONFIG REQUIRED)
find_package(hwy REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
find_path(STAGECOACH_TOMLPLUSPLUS toml++/toml.h REQUIRED)
# oneDNN's packaged build runs on libgomp; the CPU backend tells it to use one thread a call.
find_library(STAGECOACH_GOMP_LIBRARY NAMES gomp libgomp.so.1
             PATHS /usr/lib/gcc/${CMAKE_LIBRARY_ARCHITECTURE}/12 REQUIRED)

set(STAGECOACH_CORE_LIBRARIES Threads::Threads Boost::headers fmt::fmt spdlog::spdlog
    nlohmann_json::nlohmann_json OpenSSL::Crypto ${CMAKE_DL_LIBS})
if(STAGECOACH_TASK_POOL STREQUAL "tbb")
  find_package(TBB REQUIRED)
  list(APPEND STAGECOACH_CORE_LIBRARIES TBB::tbb)
elseif(NOT STAGECOACH_TASK_POOL STREQUAL "threads")
  message(FATAL_ERROR "STAGECOACH_TASK_POOL is '${STAGECOACH_TASK_POOL}'; it must be 'tbb' or 'threads'")
endif()
