# Compiles the GPU kernels (backends/gpu/kernels/) where a device compiler is installed and embeds
# the result; without one the backend is built all the same and says that it holds no kernels.
#   STAGECOACH_CUDA_ARCHS  cards to compile for, and "+ptx": code the driver compiles for newer ones
#   STAGECOACH_HIP_ARCHS   gfx targets; empty: all that this hipcc can compile
set(STAGECOACH_CUDA_ARCHS "80;86;89;90;100;120;+ptx" CACHE STRING
    "Compute capabilities to build the CUDA kernels for; +ptx adds code for newer cards")
set(STAGECOACH_HIP_ARCHS "" CACHE STRING "gfx targets to build the HIP kernels for; empty: all")

set(kernel_source ${CMAKE_SOURCE_DIR}/backends/gpu/kernels/all_kernels.gpu.cu)
file(GLOB kernel_parts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/backends/gpu/kernels/*)

# The oldest and the newest architecture also as PTX.
function(stagecoach_cuda_targets flags_variable names_variable)
  set(archs ${STAGECOACH_CUDA_ARCHS})
  set(with_ptx FALSE)
  if("+ptx" IN_LIST archs)
    set(with_ptx TRUE)
    list(REMOVE_ITEM archs "+ptx")
  endif()
  list(SORT archs COMPARE NATURAL)
  foreach(arch ${archs})
    # Cards of capability 9.0 are all one architecture, whose wgmma only code for "90a" may use.
    string(REGEX REPLACE "^90$" "90a" target ${arch})
    list(APPEND flags -gencode arch=compute_${target},code=sm_${target})
    list(APPEND names "sm_${arch}")
  endforeach()
  if(with_ptx)
    list(GET archs 0 oldest)
    list(GET archs -1 newest)
    set(ptx_archs ${oldest} ${newest})
    list(REMOVE_DUPLICATES ptx_archs)
    foreach(arch ${ptx_archs})
      list(APPEND flags -gencode arch=compute_${arch},code=compute_${arch})
      list(APPEND names "compute_${arch} (PTX)")
    endforeach()
  endif()
  set(${flags_variable} ${flags} PARENT_SCOPE)
  set(${names_variable} "${names}" PARENT_SCOPE)
endfunction()

# A .cpp that holds the bytes of `image`, for target stagecoach_backends_<folder>.
function(stagecoach_embed_kernels folder image names toolkit)
  string(TOUPPER ${folder} vendor)
  list(TRANSFORM names REPLACE "(.+)" "\"\\1\"" OUTPUT_VARIABLE quoted)
  list(JOIN quoted ", " STAGECOACH_TARGETS)
  set(STAGECOACH_FOLDER ${folder})
  set(STAGECOACH_IMAGE ${image})
  set(STAGECOACH_TOOLKIT ${toolkit})
  set(source ${CMAKE_BINARY_DIR}/generated/${folder}_kernel_image.cpp)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/kernel_image.cpp.in ${source} @ONLY)
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${image})
  target_sources(stagecoach_backends_${folder} PRIVATE ${source})
  target_compile_definitions(stagecoach_backends_${folder} PRIVATE STAGECOACH_${vendor}_KERNELS=1)
endfunction()

function(stagecoach_build_cuda_kernels)
  find_program(STAGECOACH_NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT STAGECOACH_NVCC)
    message(STATUS "nvcc is not found: the cuda backend holds no kernels")
    return()
  endif()
  execute_process(COMMAND ${STAGECOACH_NVCC} --version OUTPUT_VARIABLE version)
  string(REGEX MATCH "release ([0-9]+)\\.([0-9]+)" matched "${version}")
  math(EXPR toolkit "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 10")
  stagecoach_cuda_targets(flags names)
  set(image ${CMAKE_BINARY_DIR}/generated/kernels.fatbin)
  add_custom_command(OUTPUT ${image}
    COMMAND ${STAGECOACH_NVCC} -std=c++20 -O3 -fatbin -I${CMAKE_SOURCE_DIR} ${flags}
            -o ${image} ${kernel_source}
    DEPENDS ${kernel_parts} VERBATIM COMMENT "Compiling the GPU kernels for ${names}")
  stagecoach_embed_kernels(cuda ${image} "${names}" ${toolkit})
endfunction()

# The targets of the list that this hipcc compiles; Debian's knows fewer than a current one.
function(stagecoach_hip_targets variable)
  set(known gfx900 gfx906 gfx908 gfx90a gfx90c gfx942 gfx1010 gfx1012 gfx1030 gfx1031 gfx1032
            gfx1034 gfx1035 gfx1100 gfx1101 gfx1102 gfx1200 gfx1201)
  if(NOT DEFINED CACHE{STAGECOACH_HIP_KNOWN_ARCHS})
    set(probe ${CMAKE_BINARY_DIR}/generated/hip_probe.hip)
    file(WRITE ${probe} "#include <hip/hip_runtime.h>\n__global__ void probe(int* out) { *out = 1; }\n")
    foreach(arch ${known})
      execute_process(COMMAND ${STAGECOACH_HIPCC} --genco --offload-arch=${arch} -o ${probe}.out ${probe}
                      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
      if(NOT failed)
        list(APPEND working ${arch})
      endif()
    endforeach()
    set(STAGECOACH_HIP_KNOWN_ARCHS "${working}" CACHE INTERNAL "gfx targets this hipcc compiles")
  endif()
  set(${variable} ${STAGECOACH_HIP_KNOWN_ARCHS} PARENT_SCOPE)
endfunction()

function(stagecoach_build_hip_kernels)
  find_program(STAGECOACH_HIPCC hipcc HINTS ENV ROCM_PATH PATHS /opt/rocm PATH_SUFFIXES bin)
  if(NOT STAGECOACH_HIPCC)
    message(STATUS "hipcc is not found: the hip backend holds no kernels")
    return()
  endif()
  set(archs ${STAGECOACH_HIP_ARCHS})
  if(NOT archs)
    stagecoach_hip_targets(archs)
  endif()
  list(TRANSFORM archs PREPEND --offload-arch= OUTPUT_VARIABLE flags)
  set(image ${CMAKE_BINARY_DIR}/generated/kernels.hsaco)
  add_custom_command(OUTPUT ${image}
    COMMAND ${STAGECOACH_HIPCC} --genco -std=c++20 -O3 -I${CMAKE_SOURCE_DIR} ${flags} -o ${image}
            -x hip ${kernel_source}
    DEPENDS ${kernel_parts} VERBATIM COMMENT "Compiling the GPU kernels for ${archs}")
  stagecoach_embed_kernels(hip ${image} "${archs}" 0)
endfunction()

if(STAGECOACH_CUDA)
  stagecoach_build_cuda_kernels()
endif()
if(STAGECOACH_HIP)
  stagecoach_build_hip_kernels()
endif()
