# The CUDA language, for ASSAY_CUDA=ON. Machine code for Hopper, and code that the driver translates for every card from Ampere on; override with
# -DCMAKE_CUDA_ARCHITECTURES. The flags are the numerics contract's: no contraction, IEEE division and root, subnormals kept (the defaults).
# Older CMake is told how nvcc spells the standard. The runtime is linked statically and looks for the driver when it is first used: the program starts without one.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-virtual 90-real)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
find_package(CUDAToolkit 12 REQUIRED)
set(cuda_flags --fmad=false --expt-relaxed-constexpr -Xcompiler=-ffp-contract=off,-fno-fast-math)
if(ASSAY_WERROR)
  list(APPEND cuda_flags --Werror=all-warnings -Xcompiler=-Wall)
endif()
target_compile_options(assay_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")
