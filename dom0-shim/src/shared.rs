//! Pages that a service shares with a domain.

use std::rc::Rc;
use xen_sys::gntdev::GrantedPage;
use xen_sys::page::SharedPage;

/// The page: owned, or mapped by someone who must keep it.
pub trait Page {
    /// The memory.
    fn page(&self) -> &SharedPage;
}

/// A page that someone keeps mapped for a ring.
pub type BoxedPage = Box<dyn Page>;

impl Page for SharedPage {
    fn page(&self) -> &SharedPage {
        self
    }
}

/// A guest's page, given back when it is dropped.
impl Page for GrantedPage {
    fn page(&self) -> &SharedPage {
        GrantedPage::page(self)
    }
}

impl<P: Page> Page for Rc<P> {
    fn page(&self) -> &SharedPage {
        (**self).page()
    }
}

impl Page for BoxedPage {
    fn page(&self) -> &SharedPage {
        (**self).page()
    }
}
