# The GPU backends. Host code needs no SDK: drivers are opened at run time. Where a vendor's headers
# are found, our constants are compared with theirs.
foreach(vendor CUDA HIP)
  if(NOT STAGECOACH_${vendor})
    continue()
  endif()
  string(TOLOWER ${vendor} folder)
  stagecoach_folder_library(backends/${folder} LINKS stagecoach_backends_gpu)
  target_link_libraries(stagecoach_backends PRIVATE stagecoach_backends_${folder})
  target_compile_definitions(stagecoach_backends PUBLIC STAGECOACH_${vendor}=1)
endforeach()

# Compiles backends/<folder>/<check>_header_check.cpp where `header` is found.
function(stagecoach_check_header folder check header)
  string(TOUPPER ${folder} vendor)
  string(TOUPPER ${check} name)
  if(NOT STAGECOACH_${vendor})
    return()
  endif()
  find_path(STAGECOACH_${name}_INCLUDE ${header} ${ARGN})
  if(STAGECOACH_${name}_INCLUDE)
    set(source ${CMAKE_SOURCE_DIR}/backends/${folder}/${check}_header_check.cpp)
    target_sources(stagecoach_backends_${folder} PRIVATE ${source})
    target_include_directories(stagecoach_backends_${folder} SYSTEM PRIVATE
                               ${STAGECOACH_${name}_INCLUDE})
  else()
    message(STATUS "${header} is not found: constants of ${check} are not checked")
  endif()
endfunction()
set(cuda_places HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES include)
stagecoach_check_header(cuda cuda cuda.h ${cuda_places})
stagecoach_check_header(cuda cublaslt cublasLt.h ${cuda_places})
stagecoach_check_header(cuda cudnn cudnn_graph.h ${cuda_places})
stagecoach_check_header(hip hip hip/hip_runtime_api.h HINTS ENV ROCM_PATH PATHS /opt/rocm
                        PATH_SUFFIXES include)

# HIP's functions over NVIDIA's driver, so that the HIP backend itself runs on an NVIDIA card
# (docs/hip_backend.md). For tests only; never installed.
if(STAGECOACH_CUDA AND STAGECOACH_HIP AND STAGECOACH_TESTS)
  add_library(hip_over_cuda MODULE tests/hip_over_cuda/hip_over_cuda.cpp)
  target_link_libraries(hip_over_cuda PRIVATE stagecoach_backends_cuda stagecoach_backends_hip)
  set_target_properties(hip_over_cuda PROPERTIES CXX_VISIBILITY_PRESET hidden)
  stagecoach_configure_target(hip_over_cuda)
endif()
