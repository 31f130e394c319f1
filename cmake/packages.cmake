# Debian's packages: Abseil, glog, Protobuf, gRPC, OpenSSL, threads, all shared;
# JSON for Modern C++, headers alone.

find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(glog CONFIG REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(nlohmann_json 3.11 CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_program(FLOTILLA_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
