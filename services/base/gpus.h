#ifndef FLOTILLA_SERVICES_BASE_GPUS_H_
#define FLOTILLA_SERVICES_BASE_GPUS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flotilla {

struct Gpu {
  std::string name;
  std::string uuid;
  uint64_t memory_bytes = 0;
};

struct GpuSurvey {
  std::vector<Gpu> gpus;  // that a CUDA program of ours would see
  std::string driver;     // version; "" without one
  std::string problem;    // why there are none, in words; "" if there are some
};

// Asks NVIDIA's driver through NVML, opened at run time, so that nothing of
// ours needs CUDA to count GPUs. Respects CUDA_VISIBLE_DEVICES.
GpuSurvey SurveyGpus();

// How many of `gpus` a value of CUDA_VISIBLE_DEVICES leaves visible: indices
// and UUIDs (or their beginnings), up to the first that does not exist.
std::vector<Gpu> VisibleGpus(const std::vector<Gpu>& gpus,
                             const std::string& visible_devices);

struct GpuUse {
  double percent = 0;         // of the last sample period in which it worked
  uint64_t memory_bytes = 0;  // taken, by all processes
};

// What the `index`-th visible GPU is busy with, as NVML counts them; nullopt
// where the driver does not say.
std::optional<GpuUse> MeasureGpu(int index);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_GPUS_H_
