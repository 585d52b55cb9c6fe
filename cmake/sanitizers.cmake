# One switch for all targets, so that no object is built without the sanitizer the others have.
if(STAGECOACH_SANITIZE)
  add_compile_options(-fsanitize=${STAGECOACH_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${STAGECOACH_SANITIZE})
  if(STAGECOACH_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=all)
  endif()
  if(STAGECOACH_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Asio fences explicitly; g++ warns that TSan does not model fences.
    add_compile_options(-Wno-tsan)
  endif()
endif()
