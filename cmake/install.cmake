# What `cmake --install` puts below the prefix: the command, the headers as include/stagecoach/<folder>,
# one static library a folder, and the files find_package(stagecoach) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(STAGECOACH_CONFIG_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/stagecoach)

if(TARGET stagecoach)
  install(TARGETS stagecoach RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(PROGRAMS tools/stagecoach-prepare DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
set_target_properties(stagecoach_backends PROPERTIES EXPORT_NAME backends)
set(gpu_targets stagecoach_backends_gpu)
foreach(folder cuda hip)
  if(TARGET stagecoach_backends_${folder})
    list(APPEND gpu_targets stagecoach_backends_${folder})
  endif()
endforeach()
install(TARGETS stagecoach_core stagecoach_hal stagecoach_memory stagecoach_scheduler
                stagecoach_model stagecoach_train stagecoach_backends_cpu ${gpu_targets}
                stagecoach_backends
        EXPORT stagecoachTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT stagecoachTargets NAMESPACE stagecoach:: DESTINATION ${STAGECOACH_CONFIG_FOLDER})

install(DIRECTORY core hal memory scheduler model train backends
        DESTINATION include/stagecoach FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_BINARY_DIR}/generated/stagecoach_version.h DESTINATION include/stagecoach)

configure_package_config_file(
  cmake/stagecoachConfig.cmake.in ${CMAKE_BINARY_DIR}/stagecoachConfig.cmake
  INSTALL_DESTINATION ${STAGECOACH_CONFIG_FOLDER} NO_SET_AND_CHECK_MACRO)
# Before 1.0 every minor version may change interfaces.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/stagecoachConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/stagecoachConfig.cmake
              ${CMAKE_BINARY_DIR}/stagecoachConfigVersion.cmake
        DESTINATION ${STAGECOACH_CONFIG_FOLDER})
