# flotilla::proto: every message and service under proto/, generated into
# <build>/gen. A service file also gets its gRPC stubs.

set(gen "${CMAKE_BINARY_DIR}/gen")
set(root "${CMAKE_SOURCE_DIR}/proto")
file(GLOB_RECURSE protos CONFIGURE_DEPENDS RELATIVE "${root}" "${root}/*.proto")
file(MAKE_DIRECTORY "${gen}")

set(generated "")
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
  list(APPEND generated ${outputs})
endforeach()

add_library(flotilla_proto STATIC ${generated})
add_library(flotilla::proto ALIAS flotilla_proto)
target_include_directories(flotilla_proto SYSTEM PUBLIC "${gen}")
target_link_libraries(flotilla_proto
  PUBLIC flotilla_flags gRPC::grpc++ gRPC::grpc++_reflection protobuf::libprotobuf)
