namespace assay::trace {}  // until the room's first source
