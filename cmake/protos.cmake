# flotilla::proto: every message and service under proto/, generated into
# <build>/gen. A service file also gets its gRPC stubs. flotilla::sweep_proto is what
# the launcher alone reads, so that nothing else is linked again when that changes.

set(gen "${CMAKE_BINARY_DIR}/gen")
set(root "${CMAKE_SOURCE_DIR}/proto")
file(GLOB_RECURSE protos CONFIGURE_DEPENDS RELATIVE "${root}" "${root}/*.proto")
file(MAKE_DIRECTORY "${gen}")

set(generated "")
set(sweep_generated "")
foreach(proto IN LISTS protos)
  string(REGEX REPLACE "\\.proto$" "" stem "${proto}")
  file(STRINGS "${root}/${proto}" services REGEX "^service ")
  file(STRINGS "${root}/${proto}" imports REGEX "^import \"(flotilla|grpc)/")
  list(TRANSFORM imports REPLACE ".*\"(.*)\".*" "${root}/\\1")
  set(outputs "${gen}/${stem}.pb.cc" "${gen}/${stem}.pb.h")
  set(grpc "")
  if(services)
    list(APPEND outputs "${gen}/${stem}.grpc.pb.cc" "${gen}/${stem}.grpc.pb.h")
    set(grpc --grpc_out=${gen} "--plugin=protoc-gen-grpc=${FLOTILLA_GRPC_PLUGIN}")
  endif()
  add_custom_command(
    OUTPUT ${outputs}
    COMMAND protobuf::protoc --cpp_out=${gen} ${grpc} -I "${root}" "${root}/${proto}"
    DEPENDS "${root}/${proto}" ${imports}
    COMMENT "Generating ${proto}"
    VERBATIM)
  if(stem STREQUAL "flotilla/v1/sweep")
    list(APPEND sweep_generated ${outputs})
  else()
    list(APPEND generated ${outputs})
  endif()
endforeach()

# The schema of configurations with its comments, which generated code leaves out:
# bytes to include, so that `flotilla explain` needs no file beside the program.
set(documented "${gen}/flotilla/v1/config_descriptor.inc")
add_custom_command(
  OUTPUT "${documented}"
  COMMAND protobuf::protoc "--descriptor_set_out=${gen}/config_descriptor.bin" --include_source_info
    -I "${root}" "${root}/flotilla/v1/config.proto"
  COMMAND "${CMAKE_COMMAND}" "-DIN=${gen}/config_descriptor.bin" "-DOUT=${documented}"
    -P "${CMAKE_SOURCE_DIR}/cmake/embed.cmake"
  DEPENDS "${root}/flotilla/v1/config.proto" "${root}/flotilla/v1/range.proto"
    "${CMAKE_SOURCE_DIR}/cmake/embed.cmake"
  COMMENT "Embedding flotilla/v1/config.proto"
  VERBATIM)
list(APPEND generated "${documented}")

add_library(flotilla_proto STATIC ${generated})
add_library(flotilla::proto ALIAS flotilla_proto)
target_include_directories(flotilla_proto SYSTEM PUBLIC "${gen}")
target_link_libraries(flotilla_proto
  PUBLIC flotilla_flags gRPC::grpc++ gRPC::grpc++_reflection protobuf::libprotobuf)

add_library(flotilla_sweep_proto STATIC ${sweep_generated})
add_library(flotilla::sweep_proto ALIAS flotilla_sweep_proto)
target_link_libraries(flotilla_sweep_proto PUBLIC flotilla::proto)

# All but what is parsed a step.
if(NOT FLOTILLA_SANITIZE)
  list(FILTER generated EXCLUDE REGEX "/env\\.(grpc\\.)?pb\\.")
endif()
set_source_files_properties(${generated} ${sweep_generated} PROPERTIES COMPILE_OPTIONS "${flotilla_light}")
