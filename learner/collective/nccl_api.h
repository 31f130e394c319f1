#ifndef FLOTILLA_LEARNER_COLLECTIVE_NCCL_API_H_
#define FLOTILLA_LEARNER_COLLECTIVE_NCCL_API_H_

#include <cstddef>

namespace flotilla {

// What NcclCollective needs of NCCL and the CUDA runtime, as plain functions,
// so that it links neither: libflotilla_nccl.so has them and is opened when
// asked for. A test hands in functions of its own.
//
// Results are 0 for success, kNcclInProgress while a communicator works on the
// last call (ask State again), or another number, which Describe explains.
// Communicators are non-blocking: no function waits for a peer. One
// communicator is never in two calls at the same time.
struct NcclComm;
struct NcclEvent;

inline constexpr int kNcclOk = 0;
inline constexpr int kNcclInProgress = 7;  // ncclInProgress
inline constexpr size_t kNcclIdBytes = 128;

enum class NcclElement { kFloat32, kFloat64, kInt64, kByte };

struct NcclApi {
  int version;  // of NCCL: 22809 is 2.28.9
  // How long `abort` may take until the process is ended.
  int abort_patience_ms;

  // Makes an id for one communicator, and the listener that its ranks meet at.
  int (*make_id)(char id[kNcclIdBytes]);

  // Begins to connect this rank, on CUDA device `device`.
  int (*init)(NcclComm** comm, int world_size, const char id[kNcclIdBytes],
              int rank, int device);
  int (*state)(NcclComm* comm);

  // Queue work on `stream`, a cudaStream_t.
  int (*all_reduce_sum)(NcclComm* comm, void* data, size_t count,
                        NcclElement element, void* stream);
  // Part r of `send` goes to rank r, and part r of `receive` comes from it; a part
  // has `bytes`, and the two do not overlap.
  int (*all_to_all)(NcclComm* comm, const void* send, void* receive,
                    size_t bytes, void* stream);
  // Part r of `receive` becomes what rank r has at `send`.
  int (*all_gather)(NcclComm* comm, const void* send, void* receive,
                    size_t bytes, void* stream);
  int (*broadcast)(NcclComm* comm, void* data, size_t bytes, int root,
                   void* stream);

  // A healthy end: finalize, wait until State is 0, destroy.
  int (*finalize)(NcclComm* comm);
  int (*destroy)(NcclComm* comm);
  // Any other end: stops what runs on the GPU. May take long, or forever.
  int (*abort)(NcclComm* comm);

  const char* (*describe)(NcclComm* comm, int result);  // `comm` may be null

  // A mark in `stream`, and whether the GPU has reached it: 0, kNcclInProgress
  // or an error.
  int (*record)(NcclComm* comm, void* stream, NcclEvent** event);
  int (*query)(NcclEvent* event);
  void (*release)(NcclEvent* event);
};

// The one function that libflotilla_nccl.so exports.
inline constexpr char kNcclApiFunction[] = "flotilla_nccl_api";
using NcclApiFunction = const NcclApi*();

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_COLLECTIVE_NCCL_API_H_
