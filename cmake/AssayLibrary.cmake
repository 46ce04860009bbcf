# The one installed library: the objects of all rooms in one archive, so that its users link assay::assay and nothing else.
get_property(rooms GLOBAL PROPERTY ASSAY_ROOMS)
add_library(assay STATIC)
add_library(assay::assay ALIAS assay)
foreach(room IN LISTS rooms)
  target_sources(assay PRIVATE $<TARGET_OBJECTS:${room}>)
endforeach()
set_target_properties(assay PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME assay)
target_compile_features(assay PUBLIC cxx_std_20)
target_include_directories(assay PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(assay PRIVATE $<BUILD_INTERFACE:assay_flags>)
target_link_libraries(assay PUBLIC Threads::Threads PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::XXHASH Boost::json OpenSSL::Crypto OpenSSL::SSL ${CMAKE_DL_LIBS}
                                   fmt::fmt)

if(ASSAY_CUDA)
  target_link_libraries(assay PUBLIC CUDA::cudart_static)
endif()

# What `cmake --install` gives: the library with its headers and a CMake package, and the program (apps/cli installs that).
include(CMakePackageConfigHelpers)
install(TARGETS assay EXPORT assayTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/assay DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT assayTargets NAMESPACE assay:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/assay COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/assayConfig.cmake.in ${PROJECT_BINARY_DIR}/assayConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/assay)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/assayConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/assayConfig.cmake ${PROJECT_BINARY_DIR}/assayConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/assay COMPONENT development)
# The same for pkg-config, wherever the prefix is moved to.
file(RELATIVE_PATH ASSAY_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" ASSAY_PC_PREFIX ${ASSAY_PC_PREFIX})
set(ASSAY_PC_LIBS "")
if(ASSAY_CUDA)
  set(ASSAY_PC_LIBS "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/assay.pc.in ${PROJECT_BINARY_DIR}/assay.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/assay.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
