#include "learner/collective/nccl_api.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <memory>

// libflotilla_nccl.so: NCCL's public C API and a few CUDA events.

namespace flotilla {

struct NcclComm {
  ncclComm_t comm = nullptr;
  int device = 0;
};

struct NcclEvent {
  cudaEvent_t event = nullptr;
};

namespace {

static_assert(kNcclInProgress == ncclInProgress);
static_assert(kNcclIdBytes == NCCL_UNIQUE_ID_BYTES);

// CUDA's results, told from NCCL's.
constexpr int kCudaBase = 10000;
int FromCuda(cudaError_t error) {
  return error == cudaSuccess ? kNcclOk : kCudaBase + error;
}

ncclDataType_t TypeOf(NcclElement element) {
  switch (element) {
    case NcclElement::kFloat32:
      return ncclFloat32;
    case NcclElement::kFloat64:
      return ncclFloat64;
    case NcclElement::kInt64:
      return ncclInt64;
    case NcclElement::kByte:
      break;
  }
  return ncclUint8;
}

int MakeId(char id[kNcclIdBytes]) {
  ncclUniqueId unique_id;
  const ncclResult_t result = ncclGetUniqueId(&unique_id);
  std::memcpy(id, unique_id.internal, kNcclIdBytes);
  return result;
}

int Init(NcclComm** comm, int world_size, const char id[kNcclIdBytes], int rank,
         int device) {
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess) {
    return FromCuda(error);
  }
  ncclUniqueId unique_id;
  std::memcpy(unique_id.internal, id, kNcclIdBytes);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  auto made = std::make_unique<NcclComm>();
  made->device = device;
  const ncclResult_t result =
      ncclCommInitRankConfig(&made->comm, world_size, unique_id, rank, &config);
  *comm = made.release();
  return result;
}

int State(NcclComm* comm) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(comm->comm, &state);
  return result == ncclSuccess ? state : result;
}

int AllReduceSum(NcclComm* comm, void* data, size_t count, NcclElement element,
                 void* stream) {
  return ncclAllReduce(data, data, count, TypeOf(element), ncclSum, comm->comm,
                       static_cast<cudaStream_t>(stream));
}

int AllToAll(NcclComm* comm, const void* send, void* receive, size_t bytes,
             void* stream) {
  int world_size = 0;
  ncclResult_t result = ncclCommCount(comm->comm, &world_size);
  if (result != ncclSuccess) return result;
  result = ncclGroupStart();
  for (int r = 0; r < world_size && result == ncclSuccess; ++r) {
    const size_t at = r * bytes;
    result = ncclSend(static_cast<const char*>(send) + at, bytes, ncclUint8, r,
                      comm->comm, static_cast<cudaStream_t>(stream));
    if (result != ncclSuccess && result != ncclInProgress) break;
    result = ncclRecv(static_cast<char*>(receive) + at, bytes, ncclUint8, r,
                      comm->comm, static_cast<cudaStream_t>(stream));
    if (result == ncclInProgress) result = ncclSuccess;
  }
  const ncclResult_t ended = ncclGroupEnd();
  return result == ncclSuccess ? ended : result;
}

int AllGather(NcclComm* comm, const void* send, void* receive, size_t bytes,
              void* stream) {
  return ncclAllGather(send, receive, bytes, ncclUint8, comm->comm,
                       static_cast<cudaStream_t>(stream));
}

int Broadcast(NcclComm* comm, void* data, size_t bytes, int root,
              void* stream) {
  return ncclBroadcast(data, data, bytes, ncclUint8, root, comm->comm,
                       static_cast<cudaStream_t>(stream));
}

int Finalize(NcclComm* comm) { return ncclCommFinalize(comm->comm); }

int Destroy(NcclComm* comm) {
  cudaSetDevice(comm->device);
  const ncclResult_t result = ncclCommDestroy(comm->comm);
  delete comm;
  return result;
}

int Abort(NcclComm* comm) {
  cudaSetDevice(comm->device);
  const ncclResult_t result = ncclCommAbort(comm->comm);
  delete comm;
  return result;
}

const char* Describe(NcclComm* comm, int result) {
  if (result >= kCudaBase) {
    return cudaGetErrorString(static_cast<cudaError_t>(result - kCudaBase));
  }
  if (comm != nullptr) {
    const char* last = ncclGetLastError(comm->comm);
    if (last != nullptr && *last != '\0') return last;
  }
  return ncclGetErrorString(static_cast<ncclResult_t>(result));
}

int Record(NcclComm* comm, void* stream, NcclEvent** event) {
  cudaSetDevice(comm->device);
  auto made = std::make_unique<NcclEvent>();
  cudaError_t error =
      cudaEventCreateWithFlags(&made->event, cudaEventDisableTiming);
  if (error != cudaSuccess) return FromCuda(error);
  error = cudaEventRecord(made->event, static_cast<cudaStream_t>(stream));
  *event = made.release();
  return FromCuda(error);
}

int Query(NcclEvent* event) {
  const cudaError_t error = cudaEventQuery(event->event);
  return error == cudaErrorNotReady ? kNcclInProgress : FromCuda(error);
}

void Release(NcclEvent* event) {
  cudaEventDestroy(event->event);
  delete event;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const NcclApi*
flotilla_nccl_api() {
  static const NcclApi api = [] {
    NcclApi made{};
    ncclGetVersion(&made.version);
    made.abort_patience_ms = 30'000;
    made.make_id = MakeId;
    made.init = Init;
    made.state = State;
    made.all_reduce_sum = AllReduceSum;
    made.all_to_all = AllToAll;
    made.all_gather = AllGather;
    made.broadcast = Broadcast;
    made.finalize = Finalize;
    made.destroy = Destroy;
    made.abort = Abort;
    made.describe = Describe;
    made.record = Record;
    made.query = Query;
    made.release = Release;
    return made;
  }();
  return &api;
}

}  // namespace flotilla
