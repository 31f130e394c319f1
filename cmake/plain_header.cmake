# The precompiled header of all that sees no Torch: half of what compiling a small file
# takes is reading what that has.

# flotilla_header(name HEADERS header... DEPS target...)
#
# A precompiled header, and another one of tests: with GoogleTest, and by their options
# (see flotilla_untuned). Under sanitizers, where all is compiled alike, one serves both.
function(flotilla_header name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;DEPS")
  set(of_tests ${name})
  if(FLOTILLA_BUILD_TESTS AND NOT FLOTILLA_SANITIZE)
    set(of_tests ${name}_of_tests)
  endif()
  set(names ${name} ${of_tests})
  list(REMOVE_DUPLICATES names)
  foreach(each IN LISTS names)
    add_library(${each} OBJECT "${CMAKE_SOURCE_DIR}/cmake/empty.cc")
    target_precompile_headers(${each} PRIVATE ${arg_HEADERS})
    target_link_libraries(${each} PRIVATE flotilla_flags flotilla_warnings ${arg_DEPS})
  endforeach()
  if(FLOTILLA_BUILD_TESTS)
    target_precompile_headers(${of_tests} PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
    target_compile_options(${of_tests} PRIVATE ${flotilla_untuned})
  endif()
  set_target_properties(${name} PROPERTIES FLOTILLA_OF_TESTS ${of_tests})
endfunction()

# flotilla_use_header(target name [TEST]): the one that `name` is, or its tests' one.
function(flotilla_use_header target name)
  if("TEST" IN_LIST ARGN)
    get_target_property(name ${name} FLOTILLA_OF_TESTS)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()

set(flotilla_plain_headers "${CMAKE_SOURCE_DIR}/cmake/plain_header.h")
flotilla_header(flotilla_plain_header
  HEADERS ${flotilla_plain_headers}
  DEPS gRPC::grpc++ protobuf::libprotobuf glog::glog absl::status absl::statusor absl::strings
    absl::str_format absl::time)

# flotilla_plain_pch(target [OWN | TEST] dep...): compiles `target`, which links `dep`s, with
# it, if they see our messages and no Torch. It brings options along that it was compiled
# with: OWN makes another by those of `target`.
function(flotilla_plain_pch target)
  flotilla_links(torch torch::torch ${ARGN})
  flotilla_links(messages flotilla::proto ${ARGN})
  if(messages AND NOT torch)
    if("OWN" IN_LIST ARGN)
      target_precompile_headers(${target} PRIVATE "${CMAKE_SOURCE_DIR}/cmake/plain_header.h")
    else()
      flotilla_use_header(${target} flotilla_plain_header ${ARGN})
    endif()
    # g++ 12 tells of its own std::string then, as elsewhere of what -Wno-restrict is
    # for. Memory is checked by the sanitizers of the preset clang.
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>")
  endif()
endfunction()
