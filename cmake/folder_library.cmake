# One static library a folder: stagecoach_<folder>, from every .cpp directly in it and in the
# SUBFOLDERS that are named.
function(stagecoach_configure_target target)
  target_compile_options(${target} PRIVATE ${STAGECOACH_WARNINGS})
endfunction()

function(stagecoach_set_includes target scope)
  target_include_directories(${target} ${scope}
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/generated>
    $<INSTALL_INTERFACE:include/stagecoach>)
endfunction()

function(stagecoach_folder_library folder)
  cmake_parse_arguments(ARG "" "" "LINKS;SUBFOLDERS" ${ARGN})
  string(REPLACE "/" "_" export_name ${folder})
  set(name stagecoach_${export_name})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
  foreach(subfolder ${ARG_SUBFOLDERS})
    file(GLOB more CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/${subfolder}/*.cpp)
    list(APPEND sources ${more})
  endforeach()
  # Those need a vendor's header; cmake/gpu_backends.cmake adds them where it is found.
  list(FILTER sources EXCLUDE REGEX "_header_check\\.cpp$")
  if(folder STREQUAL "core")
    if(STAGECOACH_TASK_POOL STREQUAL "tbb")
      list(FILTER sources EXCLUDE REGEX "task_pool_threads\\.cpp$")
    else()
      list(FILTER sources EXCLUDE REGEX "task_pool_tbb\\.cpp$")
    endif()
  endif()
  if(NOT sources)
    # A folder of headers only; it still carries its include path and links.
    add_library(${name} INTERFACE)
    stagecoach_set_includes(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ${ARG_LINKS})
    set_target_properties(${name} PROPERTIES EXPORT_NAME ${export_name})
    return()
  endif()
  add_library(${name} STATIC ${sources})
  stagecoach_set_includes(${name} PUBLIC)
  target_link_libraries(${name} PUBLIC ${ARG_LINKS})
  set_target_properties(${name} PROPERTIES EXPORT_NAME ${export_name})
  stagecoach_configure_target(${name})
  if(STAGECOACH_UNITY AND NOT folder MATCHES "^(backends/|testing)")
    stagecoach_unite(${name})
  endif()
endfunction()

# Sources are compiled several at a time: a build from nothing takes half the time. Not for backends,
# whose files have parts of one name, one a vendor.
function(stagecoach_unite target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # It sees members of unnamed namespaces in what is included, which sources now are.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()
