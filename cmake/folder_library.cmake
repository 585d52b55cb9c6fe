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
endfunction()
