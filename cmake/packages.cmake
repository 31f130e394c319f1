# Debian's packages: Abseil, glog, Protobuf, gRPC, OpenSSL, threads. All shared.

find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(glog CONFIG REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_program(FLOTILLA_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
