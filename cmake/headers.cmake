# Two targets that check sources, and link nothing.
#
#   headers      every header of ours compiles by itself, without the precompiled
#                one: it includes what it needs
#   annotations  under clang, what is behind Torch keeps to its lock annotations
#                (all else does so when it is built)

file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}"
  services/*.h envserver/*.h launcher/*.h learner/*.h tests/*.h)
set(plain "")
set(torch "")
foreach(header IN LISTS headers)
  set(unit "${CMAKE_BINARY_DIR}/headers/${header}.cc")
  file(CONFIGURE OUTPUT "${unit}" CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
  if(header MATCHES "^(tests/)?learner/|^tests/rehearsal/")
    list(APPEND torch "${unit}")
  else()
    list(APPEND plain "${unit}")
  endif()
endforeach()

# A header may define functions that those who include it use.
add_library(headers_plain OBJECT EXCLUDE_FROM_ALL ${plain})
target_compile_options(headers_plain PRIVATE -Wno-unused-function)
target_link_libraries(headers_plain
  PRIVATE flotilla_flags flotilla_warnings flotilla::base GTest::gmock)
add_custom_target(headers DEPENDS headers_plain)
add_custom_target(annotations)
if(NOT FLOTILLA_BUILD_LEARNER)
  return()
endif()

add_library(headers_torch OBJECT EXCLUDE_FROM_ALL ${torch})
target_compile_options(headers_torch PRIVATE -Wno-unused-function)
target_link_libraries(headers_torch
  PRIVATE flotilla_flags flotilla_warnings flotilla::training GTest::gmock)
add_dependencies(headers headers_torch)

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(annotated "")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS
    learner/*.cc tests/learner/*.cc tests/rehearsal/*.cc)
  foreach(source IN LISTS sources)
    string(REGEX REPLACE "cc$" "h" header "${source}")
    foreach(file "${source}" "${header}")
      if(EXISTS "${file}")
        file(STRINGS "${file}" locks REGEX "ABSL_[A-Z_]*(GUARDED_BY|LOCK)|MutexLock" LIMIT_COUNT 1)
        if(locks)
          list(APPEND annotated "${source}")
        endif()
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES annotated)
  add_library(annotated OBJECT EXCLUDE_FROM_ALL ${annotated})
  target_link_libraries(annotated
    PRIVATE flotilla_flags flotilla_warnings flotilla::training GTest::gmock)
  flotilla_torch_pch(annotated)
  add_dependencies(annotations annotated)
endif()
