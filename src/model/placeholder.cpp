// Holds the room until its first source lands.
namespace assay { int placeholder_model() { return 0; } }
