//! The publications cited in the docs of blocks.

/// One publication.
pub struct Publication {
    /// The short form used in the docs.
    pub short: &'static str,
    /// Authors, title and venue.
    pub full: &'static str,
}

/// All publications that the docs cite.
pub const PUBLICATIONS: &[Publication] = &[
    Publication {
        short: "Kruskal 1964",
        full: "J. B. Kruskal. Multidimensional Scaling by Optimizing Goodness of Fit to a \
               Nonmetric Hypothesis. Psychometrika 29, 1964.",
    },
    Publication {
        short: "Rasmussen & Williams 2006",
        full: "C. E. Rasmussen, C. K. I. Williams. Gaussian Processes for Machine Learning. MIT \
               Press, 2006.",
    },
    Publication {
        short: "van der Maaten & Hinton 2008",
        full: "L. van der Maaten, G. Hinton. Visualizing Data using t-SNE. Journal of Machine \
               Learning Research 9, 2008.",
    },
    Publication {
        short: "Cooley & Tukey 1965",
        full: "J. W. Cooley, J. W. Tukey. An Algorithm for the Machine Calculation of Complex \
               Fourier Series. Mathematics of Computation 19, 1965.",
    },
    Publication {
        short: "Nair & Hinton 2010",
        full: "V. Nair, G. Hinton. Rectified Linear Units Improve Restricted Boltzmann \
               Machines. ICML 2010.",
    },
    Publication {
        short: "Maas et al. 2013",
        full: "A. Maas, A. Hannun, A. Ng. Rectifier Nonlinearities Improve Neural \
               Network Acoustic Models. ICML 2013.",
    },
    Publication {
        short: "Clevert et al. 2016",
        full: "D.-A. Clevert, T. Unterthiner, S. Hochreiter. Fast and Accurate Deep \
               Network Learning by Exponential Linear Units (ELUs). ICLR 2016, \
               arXiv:1511.07289.",
    },
    Publication {
        short: "Klambauer et al. 2017",
        full: "G. Klambauer, T. Unterthiner, A. Mayr, S. Hochreiter. Self-Normalizing \
               Neural Networks. NIPS 2017, arXiv:1706.02515.",
    },
    Publication {
        short: "Hendrycks & Gimpel 2016",
        full: "D. Hendrycks, K. Gimpel. Gaussian Error Linear Units (GELUs). \
               arXiv:1606.08415.",
    },
    Publication {
        short: "Elfwing et al. 2018",
        full: "S. Elfwing, E. Uchibe, K. Doya. Sigmoid-Weighted Linear Units for Neural \
               Network Function Approximation in Reinforcement Learning. Neural Networks \
               107, arXiv:1702.03118.",
    },
    Publication {
        short: "Misra 2019",
        full: "D. Misra. Mish: A Self Regularized Non-Monotonic Activation Function. \
               arXiv:1908.08681.",
    },
    Publication {
        short: "Howard et al. 2019",
        full: "A. Howard et al. Searching for MobileNetV3. ICCV 2019, arXiv:1905.02244.",
    },
    Publication {
        short: "Howard et al. 2017",
        full: "A. G. Howard et al. MobileNets: Efficient Convolutional Neural Networks for \
               Mobile Vision Applications. arXiv:1704.04861.",
    },
    Publication {
        short: "Jang et al. 2017",
        full: "E. Jang, S. Gu, B. Poole. Categorical Reparameterization with Gumbel-Softmax. \
               ICLR 2017, arXiv:1611.01144.",
    },
    Publication {
        short: "Zhang et al. 2018",
        full: "X. Zhang, X. Zhou, M. Lin, J. Sun. ShuffleNet: An Extremely Efficient \
               Convolutional Neural Network for Mobile Devices. CVPR 2018, arXiv:1707.01083.",
    },
    Publication {
        short: "Dauphin et al. 2017",
        full: "Y. N. Dauphin, A. Fan, M. Auli, D. Grangier. Language Modeling with Gated \
               Convolutional Networks. ICML 2017, arXiv:1612.08083.",
    },
    Publication {
        short: "Barron 2017",
        full: "J. T. Barron. Continuously Differentiable Exponential Linear Units. \
               arXiv:1704.07483.",
    },
    Publication {
        short: "Xu et al. 2015",
        full: "B. Xu, N. Wang, T. Chen, M. Li. Empirical Evaluation of Rectified Activations in \
               Convolutional Network. arXiv:1505.00853.",
    },
    Publication {
        short: "He et al. 2015",
        full: "K. He, X. Zhang, S. Ren, J. Sun. Delving Deep into Rectifiers: Surpassing \
               Human-Level Performance on ImageNet Classification. ICCV 2015, arXiv:1502.01852.",
    },
    Publication {
        short: "Dugas et al. 2001",
        full: "C. Dugas, Y. Bengio, F. Bélisle, C. Nadeau, R. Garcia. Incorporating \
               Second-Order Functional Knowledge for Better Option Pricing. NIPS 2000 \
               (proceedings of 2001).",
    },
    Publication {
        short: "Bergstra et al. 2009",
        full: "J. Bergstra, G. Desjardins, P. Lamblin, Y. Bengio. Quadratic Polynomials \
               Learn Better Image Features. Technical report 1337, Université de \
               Montréal, 2009.",
    },
    Publication {
        short: "Srivastava et al. 2014",
        full: "N. Srivastava, G. Hinton, A. Krizhevsky, I. Sutskever, R. Salakhutdinov. \
               Dropout: A Simple Way to Prevent Neural Networks from Overfitting. JMLR \
               15, 2014.",
    },
    Publication {
        short: "Ba et al. 2016",
        full: "J. L. Ba, J. R. Kiros, G. Hinton. Layer Normalization. arXiv:1607.06450.",
    },
    Publication {
        short: "Zhang & Sennrich 2019",
        full: "B. Zhang, R. Sennrich. Root Mean Square Layer Normalization. NeurIPS \
               2019, arXiv:1910.07467.",
    },
    Publication {
        short: "Ioffe & Szegedy 2015",
        full: "S. Ioffe, C. Szegedy. Batch Normalization: Accelerating Deep Network \
               Training by Reducing Internal Covariate Shift. ICML 2015, \
               arXiv:1502.03167.",
    },
    Publication {
        short: "Salimans & Kingma 2016",
        full: "T. Salimans, D. P. Kingma. Weight Normalization: A Simple Reparameterization to \
               Accelerate Training of Deep Neural Networks. NIPS 2016, arXiv:1602.07868.",
    },
    Publication {
        short: "Miyato et al. 2018",
        full: "T. Miyato, T. Kataoka, M. Koyama, Y. Yoshida. Spectral Normalization for Generative \
               Adversarial Networks. ICLR 2018, arXiv:1802.05957.",
    },
    Publication {
        short: "Wu & He 2018",
        full: "Y. Wu, K. He. Group Normalization. ECCV 2018, arXiv:1803.08494.",
    },
    Publication {
        short: "Ulyanov et al. 2016",
        full: "D. Ulyanov, A. Vedaldi, V. Lempitsky. Instance Normalization: The Missing \
               Ingredient for Fast Stylization. arXiv:1607.08022.",
    },
    Publication {
        short: "Krizhevsky et al. 2012",
        full: "A. Krizhevsky, I. Sutskever, G. Hinton. ImageNet Classification with Deep \
               Convolutional Neural Networks. NIPS 2012.",
    },
    Publication {
        short: "Tompson et al. 2015",
        full: "J. Tompson, R. Goroshin, A. Jain, Y. LeCun, C. Bregler. Efficient Object \
               Localization Using Convolutional Networks. CVPR 2015, arXiv:1411.4280.",
    },
    Publication {
        short: "Shi et al. 2016",
        full: "W. Shi et al. Real-Time Single Image and Video Super-Resolution Using an \
               Efficient Sub-Pixel Convolutional Neural Network. CVPR 2016, arXiv:1609.05158.",
    },
    Publication {
        short: "Grave et al. 2017",
        full: "E. Grave, A. Joulin, M. Cissé, D. Grangier, H. Jégou. Efficient Softmax \
               Approximation for GPUs. ICML 2017.",
    },
    Publication {
        short: "Sak et al. 2014",
        full: "H. Sak, A. Senior, F. Beaufays. Long Short-Term Memory Recurrent Neural Network \
               Architectures for Large Scale Acoustic Modeling. Interspeech 2014.",
    },
    Publication {
        short: "Graham 2014",
        full: "B. Graham. Fractional Max-Pooling. arXiv:1412.6071, 2014.",
    },
    Publication {
        short: "Jaderberg et al. 2015",
        full: "M. Jaderberg, K. Simonyan, A. Zisserman, K. Kavukcuoglu. Spatial Transformer \
               Networks. NIPS 2015, arXiv:1506.02025.",
    },
    Publication {
        short: "Keys 1981",
        full: "R. Keys. Cubic Convolution Interpolation for Digital Image Processing. IEEE \
               Transactions on Acoustics, Speech, and Signal Processing 29, 1981.",
    },
    Publication {
        short: "Vaswani et al. 2017",
        full: "A. Vaswani et al. Attention Is All You Need. NIPS 2017, arXiv:1706.03762.",
    },
    Publication {
        short: "Ainslie et al. 2023",
        full: "J. Ainslie et al. GQA: Training Generalized Multi-Query Transformer \
               Models from Multi-Head Checkpoints. EMNLP 2023, arXiv:2305.13245.",
    },
    Publication {
        short: "Beltagy et al. 2020",
        full: "I. Beltagy, M. E. Peters, A. Cohan. Longformer: The Long-Document Transformer. \
               arXiv:2004.05150.",
    },
    Publication {
        short: "Press et al. 2022",
        full: "O. Press, N. A. Smith, M. Lewis. Train Short, Test Long: Attention with Linear \
               Biases Enables Input Length Extrapolation. ICLR 2022, arXiv:2108.12409.",
    },
    Publication {
        short: "Raffel et al. 2020",
        full: "C. Raffel et al. Exploring the Limits of Transfer Learning with a Unified \
               Text-to-Text Transformer. JMLR 21, 2020, arXiv:1910.10683.",
    },
    Publication {
        short: "Gemma Team 2024",
        full: "Gemma Team. Gemma 2: Improving Open Language Models at a Practical Size. \
               arXiv:2408.00118.",
    },
    Publication {
        short: "Xiao et al. 2024",
        full: "G. Xiao, Y. Tian, B. Chen, S. Han, M. Lewis. Efficient Streaming Language Models \
               with Attention Sinks. ICLR 2024, arXiv:2309.17453.",
    },
    Publication {
        short: "Shazeer et al. 2017",
        full: "N. Shazeer et al. Outrageously Large Neural Networks: The Sparsely-Gated \
               Mixture-of-Experts Layer. ICLR 2017, arXiv:1701.06538.",
    },
    Publication {
        short: "Fedus et al. 2022",
        full: "W. Fedus, B. Zoph, N. Shazeer. Switch Transformers: Scaling to Trillion Parameter \
               Models with Simple and Efficient Sparsity. JMLR 23, 2022, arXiv:2101.03961.",
    },
    Publication {
        short: "Jiang et al. 2024",
        full: "A. Q. Jiang et al. Mixtral of Experts. arXiv:2401.04088.",
    },
    Publication {
        short: "Su et al. 2021",
        full: "J. Su et al. RoFormer: Enhanced Transformer with Rotary Position \
               Embedding. arXiv:2104.09864.",
    },
    Publication {
        short: "He et al. 2016",
        full: "K. He, X. Zhang, S. Ren, J. Sun. Deep Residual Learning for Image \
               Recognition. CVPR 2016, arXiv:1512.03385.",
    },
    Publication {
        short: "Huber 1964",
        full: "P. Huber. Robust Estimation of a Location Parameter. Annals of \
               Mathematical Statistics 35, 1964.",
    },
    Publication {
        short: "Rosasco et al. 2004",
        full: "L. Rosasco, E. De Vito, A. Caponnetto, M. Piana, A. Verri. Are Loss \
               Functions All the Same? Neural Computation 16, 2004.",
    },
    Publication {
        short: "Koenker & Bassett 1978",
        full: "R. Koenker, G. Bassett. Regression Quantiles. Econometrica 46, 1978.",
    },
    Publication {
        short: "Szegedy et al. 2016",
        full: "C. Szegedy, V. Vanhoucke, S. Ioffe, J. Shlens, Z. Wojna. Rethinking the \
               Inception Architecture for Computer Vision. CVPR 2016, arXiv:1512.00567.",
    },
    Publication {
        short: "Kullback & Leibler 1951",
        full: "S. Kullback, R. Leibler. On Information and Sufficiency. Annals of \
               Mathematical Statistics 22, 1951.",
    },
    Publication {
        short: "Hadsell et al. 2006",
        full: "R. Hadsell, S. Chopra, Y. LeCun. Dimensionality Reduction by Learning an \
               Invariant Mapping. CVPR 2006.",
    },
    Publication {
        short: "Nix & Weigend 1994",
        full: "D. Nix, A. Weigend. Estimating the Mean and Variance of the Target \
               Probability Distribution. IEEE International Conference on Neural Networks 1994.",
    },
    Publication {
        short: "Balntas et al. 2016",
        full: "V. Balntas, E. Riba, D. Ponsa, K. Mikolajczyk. Learning Local Feature \
               Descriptors with Triplets and Shallow Convolutional Neural Networks. BMVC 2016.",
    },
    Publication {
        short: "Lin et al. 2017",
        full: "T.-Y. Lin, P. Goyal, R. Girshick, K. He, P. Dollár. Focal Loss for Dense \
               Object Detection. ICCV 2017, arXiv:1708.02002.",
    },
    Publication {
        short: "Sudre et al. 2017",
        full: "C. Sudre, W. Li, T. Vercauteren, S. Ourselin, M. J. Cardoso. Generalised \
               Dice Overlap as a Deep Learning Loss Function for Highly Unbalanced \
               Segmentations. DLMIA 2017, arXiv:1707.03237.",
    },
    Publication {
        short: "Tibshirani 1996",
        full: "R. Tibshirani. Regression Shrinkage and Selection via the Lasso. Journal \
               of the Royal Statistical Society B 58, 1996.",
    },
    Publication {
        short: "Hoerl & Kennard 1970",
        full: "A. Hoerl, R. Kennard. Ridge Regression: Biased Estimation for \
               Nonorthogonal Problems. Technometrics 12, 1970.",
    },
    Publication {
        short: "van Rijsbergen 1979",
        full: "C. J. van Rijsbergen. Information Retrieval. Butterworths, 2nd edition, \
               1979.",
    },
    Publication {
        short: "Hanley & McNeil 1982",
        full: "J. Hanley, B. McNeil. The Meaning and Use of the Area under a Receiver \
               Operating Characteristic (ROC) Curve. Radiology 143, 1982.",
    },
    Publication {
        short: "Elman 1990",
        full: "J. Elman. Finding Structure in Time. Cognitive Science 14(2), 1990.",
    },
    Publication {
        short: "Hochreiter & Schmidhuber 1997",
        full: "S. Hochreiter, J. Schmidhuber. Long Short-Term Memory. Neural Computation 9(8), \
               1997.",
    },
    Publication {
        short: "Gers et al. 2000",
        full: "F. Gers, J. Schmidhuber, F. Cummins. Learning to Forget: Continual Prediction with \
               LSTM. Neural Computation 12(10), 2000.",
    },
    Publication {
        short: "Cho et al. 2014",
        full: "K. Cho et al. Learning Phrase Representations using RNN Encoder-Decoder for \
               Statistical Machine Translation. EMNLP 2014, arXiv:1406.1078.",
    },
    Publication {
        short: "Williams & Zipser 1989",
        full: "R. Williams, D. Zipser. A Learning Algorithm for Continually Running Fully Recurrent \
               Neural Networks. Neural Computation 1(2), 1989.",
    },
    Publication {
        short: "Sutskever et al. 2014",
        full: "I. Sutskever, O. Vinyals, Q. Le. Sequence to Sequence Learning with Neural \
               Networks. NIPS 2014, arXiv:1409.3215.",
    },
    Publication {
        short: "Graves et al. 2006",
        full: "A. Graves, S. Fernández, F. Gomez, J. Schmidhuber. Connectionist Temporal \
               Classification: Labelling Unsegmented Sequence Data with Recurrent Neural Networks. \
               ICML 2006.",
    },
];

impl Publication {
    /// The publications that a text cites, in the order of the list.
    pub fn named(text: &str) -> impl Iterator<Item = &'static Publication> {
        PUBLICATIONS.iter().filter(move |source| text.contains(source.short))
    }
}
