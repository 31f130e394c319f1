# The precompiled header of all that sees no Torch: half of what compiling a small file
# takes is reading what that has.

set(flotilla_plain_headers "${CMAKE_SOURCE_DIR}/cmake/plain_header.h")
if(FLOTILLA_BUILD_TESTS)
  list(APPEND flotilla_plain_headers <gmock/gmock.h> <gtest/gtest.h>)
endif()
add_library(flotilla_plain_header OBJECT "${CMAKE_SOURCE_DIR}/cmake/empty.cc")
target_precompile_headers(flotilla_plain_header PRIVATE ${flotilla_plain_headers})
target_link_libraries(flotilla_plain_header
  PRIVATE flotilla_flags flotilla_warnings gRPC::grpc++ protobuf::libprotobuf glog::glog
    absl::status absl::statusor absl::strings absl::str_format absl::time)

# flotilla_plain_pch(target [OWN] dep...): compiles `target`, which links `dep`s, with it,
# if they see our messages and no Torch. It brings options along that it was compiled
# with: OWN makes another by those of `target`.
function(flotilla_plain_pch target)
  flotilla_links(torch torch::torch ${ARGN})
  flotilla_links(messages flotilla::proto ${ARGN})
  if(messages AND NOT torch)
    if("OWN" IN_LIST ARGN)
      target_precompile_headers(${target} PRIVATE "${CMAKE_SOURCE_DIR}/cmake/plain_header.h")
    else()
      target_precompile_headers(${target} REUSE_FROM flotilla_plain_header)
    endif()
    # g++ 12 tells of its own std::string then, as elsewhere of what -Wno-restrict is
    # for. Memory is checked by the sanitizers of the preset clang.
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>")
  endif()
endfunction()
